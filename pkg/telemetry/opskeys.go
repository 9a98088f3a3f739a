package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// The scopes of a key of the operations listener.
const (
	ScopeMetrics  = "metrics"  // GET /metrics
	ScopeRead     = "read"     // GET /ops/v1/…
	ScopeWrite    = "write"    // everything else under /ops/v1/, apart from
	ScopeSteer    = "steer"    // what changes a running deployment: its limits,
	ScopePersonal = "personal" // and what is kept of one follower: /ops/v1/users/
	ScopeDebug    = "debug"    // /debug/pprof: memory and stacks of the process
)

// OpsScopes lists them.
func OpsScopes() []string {
	return []string{ScopeMetrics, ScopeRead, ScopeWrite, ScopeSteer, ScopePersonal, ScopeDebug}
}

// OpsKey is one key of the operations listener as the configuration has it. The
// key itself is kept by whoever uses it; here is only its hash.
type OpsKey struct {
	// Name says whose it is.
	Name string `koanf:"name"`
	// SHA256 is the hash of the key's text, in hexadecimal.
	SHA256 string   `koanf:"sha256"`
	Scopes []string `koanf:"scopes"`
}

const opsKeyPrefix = "tgo_"

// NewOpsKey makes a key of 256 random bits and gives its text and hash. A plain
// hash is enough: there is nothing to guess that a slow one would protect.
func NewOpsKey() (text, hash string) {
	b := make([]byte, 32)
	rand.Read(b) // never fails: it ends the process instead
	text = opsKeyPrefix + base64.RawURLEncoding.EncodeToString(b)
	sum := sha256.Sum256([]byte(text))
	return text, hex.EncodeToString(sum[:])
}

// ValidateOpsKeys reports the first key that cannot be used.
func ValidateOpsKeys(keys []OpsKey) error {
	_, err := compile(keys)
	return err
}

// opsKey is a key ready for comparison.
type opsKey struct {
	name   string
	hash   [sha256.Size]byte
	scopes []string
}

var opsKeyName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

func compile(keys []OpsKey) ([]opsKey, error) {
	out := make([]opsKey, len(keys))
	names, hashes := map[string]bool{}, map[[sha256.Size]byte]bool{}
	for i, k := range keys {
		if !opsKeyName.MatchString(k.Name) {
			return nil, fmt.Errorf("keys[%d]: name %.60q: use 1 to 40 of a-z, 0-9 and -", i, k.Name)
		}
		b, err := hex.DecodeString(k.SHA256)
		if err != nil || len(b) != sha256.Size {
			return nil, fmt.Errorf("keys[%d] (%s): sha256 is not 64 hexadecimal digits: 'tidegate ops-key %s' makes a key and its hash", i, k.Name, k.Name)
		}
		if len(k.Scopes) == 0 {
			return nil, fmt.Errorf("keys[%d] (%s): no scopes: give some of %s", i, k.Name, strings.Join(OpsScopes(), ", "))
		}
		for _, s := range k.Scopes {
			if !slices.Contains(OpsScopes(), s) {
				return nil, fmt.Errorf("keys[%d] (%s): scope %.60q: use %s", i, k.Name, s, strings.Join(OpsScopes(), ", "))
			}
		}
		out[i] = opsKey{name: k.Name, hash: [sha256.Size]byte(b), scopes: k.Scopes}
		if names[k.Name] || hashes[out[i].hash] {
			return nil, fmt.Errorf("keys[%d] (%s): its name or its hash is that of another key", i, k.Name)
		}
		names[k.Name], hashes[out[i].hash] = true, true
	}
	return out, nil
}

// SetKeys puts the listener behind keys from now on; with none it is open, which
// is right on loopback only.
func (o *Ops) SetKeys(keys []OpsKey) error {
	compiled, err := compile(keys)
	if err != nil {
		return err
	}
	o.keys.Store(&compiled)
	return nil
}

// openListener is whom a listener without keys takes everybody for.
const openListener = "(no key: the listener is open)"

// keyOf gives what the request may do, and by whose key. known is false without
// a valid one. Every key is compared, whatever the ones before gave, in constant
// time.
func (o *Ops) keyOf(r *http.Request) (k opsKey, known bool) {
	if o.open() {
		return opsKey{name: openListener, scopes: OpsScopes()}, true
	}
	text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		return opsKey{}, false
	}
	sum := sha256.Sum256([]byte(text))
	for _, one := range *o.keys.Load() {
		if subtle.ConstantTimeCompare(sum[:], one.hash[:]) == 1 {
			k, known = one, true
		}
	}
	return k, known
}

func (o *Ops) open() bool {
	keys := o.keys.Load()
	return keys == nil || len(*keys) == 0
}

type keyName struct{}

// OpsKeyName is the name of the key that a request to an operations endpoint
// came with, for whoever writes down who did what.
func OpsKeyName(ctx context.Context) string {
	name, _ := ctx.Value(keyName{}).(string)
	return name
}

// need puts a handler behind a scope. The check stands at the handler, not at
// the path, so that no spelling of a path leads around it.
func (o *Ops) need(scope string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		needed, reads := scope, r.Method == http.MethodGet || r.Method == http.MethodHead
		if needed == ScopeRead && !reads {
			needed = ScopeWrite
		}
		k, known := o.keyOf(r)
		switch {
		case o.open() && !namesThisMachine(r.Host):
			o.refuse(w, http.StatusForbidden, "denied", "a listener without keys answers only to an IP address or localhost in the Host header: a web page may have led its own name here", "Ask by the address, for example http://127.0.0.1:9100, or give the listener keys, with which every name is good: 'tidegate ops-key NAME --scope "+needed+"' makes one for ops.keys.")
		case !reads && o.open() && fromPage(r):
			// Any page that somebody at this machine looks at can send requests here.
			o.refuse(w, http.StatusForbidden, "denied", "a listener without keys takes no changes from a web page", "Use the command line, or give the listener keys: 'tidegate ops-key NAME --scope "+needed+"' makes one for ops.keys.")
		case slices.Contains(k.scopes, needed):
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), keyName{}, k.name)))
		case known:
			o.refuse(w, http.StatusForbidden, "denied", "this key has not the scope "+needed, "Use a key that has it, or add the scope to the key in ops.keys; 'tidegate ops-key NAME --scope "+needed+"' makes a new one.")
		default:
			o.refuse(w, http.StatusUnauthorized, "unauthenticated", "no valid key", "Send \"Authorization: Bearer tgo_…\" with a key of ops.keys that has the scope "+needed+"; 'tidegate ops-key NAME --scope "+needed+"' makes one.")
		}
	})
}

// fromPage tells that a browser sends this for a page.
func fromPage(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// namesThisMachine tells that a Host header holds no name but localhost. A page
// that leads a name of its own to our address (DNS rebinding) may read what the
// browser gets here, since for the browser both have one origin; its requests carry
// that name. Nobody can lead an IP address or localhost anywhere else.
func namesThisMachine(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else if bare, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(bare, "]")
	}
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

// refuse answers in the form that the public API has too (RFC 9457).
func (o *Ops) refuse(w http.ResponseWriter, status int, errcode, detail, do string) {
	o.refused.WithLabelValues(errcode).Inc()
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tidegate operations"`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client went away: nobody is left to tell
		"type": "about:blank", "title": http.StatusText(status), "status": status, "errcode": errcode, "detail": detail, "do": do,
	})
}
