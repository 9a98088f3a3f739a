package telemetry

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// The scopes of a key of the operations listener.
const (
	ScopeMetrics = "metrics" // GET /metrics
	ScopeRead    = "read"    // GET /ops/v1/…
	ScopeWrite   = "write"   // everything else under /ops/v1/
	ScopeDebug   = "debug"   // /debug/pprof: memory and stacks of the process
)

// OpsScopes lists them.
func OpsScopes() []string { return []string{ScopeMetrics, ScopeRead, ScopeWrite, ScopeDebug} }

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
		out[i] = opsKey{hash: [sha256.Size]byte(b), scopes: k.Scopes}
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

// scopesOf gives what the request may do. known is false without a valid key.
// Every key is compared, whatever the ones before gave, in constant time.
func (o *Ops) scopesOf(r *http.Request) (scopes []string, known bool) {
	keys := o.keys.Load()
	if keys == nil || len(*keys) == 0 {
		return OpsScopes(), true
	}
	text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		return nil, false
	}
	sum := sha256.Sum256([]byte(text))
	for _, k := range *keys {
		if subtle.ConstantTimeCompare(sum[:], k.hash[:]) == 1 {
			scopes, known = k.scopes, true
		}
	}
	return scopes, known
}

// need puts a handler behind a scope. The check stands at the handler, not at
// the path, so that no spelling of a path leads around it.
func (o *Ops) need(scope string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		needed := scope
		if needed == ScopeRead && r.Method != http.MethodGet && r.Method != http.MethodHead {
			needed = ScopeWrite
		}
		scopes, known := o.scopesOf(r)
		switch {
		case slices.Contains(scopes, needed):
			h.ServeHTTP(w, r)
		case known:
			o.refuse(w, http.StatusForbidden, "denied", "this key has not the scope "+needed, "Use a key that has it, or add the scope to the key in ops.keys; 'tidegate ops-key NAME --scope "+needed+"' makes a new one.")
		default:
			o.refuse(w, http.StatusUnauthorized, "unauthenticated", "no valid key", "Send \"Authorization: Bearer tgo_…\" with a key of ops.keys that has the scope "+needed+"; 'tidegate ops-key NAME --scope "+needed+"' makes one.")
		}
	})
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
