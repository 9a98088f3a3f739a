package intake

import (
	"net/url"
	"regexp"
	"sort"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tidegate/pkg/wire"
)

// Limits of fields. WeChat's own limits are narrower in places and change;
// these bound what we carry.
const (
	maxKey       = 128
	maxReference = 128
	maxURL       = 1024 // bytes
	maxPath      = 1024 // bytes
	maxDataKeys  = 32
	maxValue     = 1000    // characters of one value
	maxData      = 8 << 10 // bytes of all values
	maxAhead     = 7 * 24 * time.Hour
)

var (
	templateID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	dataKey    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,31}$`)
	miniAppID  = regexp.MustCompile(`^wx[0-9a-f]{16}$`)
	typedKey   = regexp.MustCompile(`^([a-z_]+)[0-9]+$`)
)

// subscriptionLimits are the documented lengths, in characters, of a
// subscription message's values by the type in front of the key's number
// (wechat.md 4.4). Found here, a value that is too long is an answer with a
// field name instead of errcode 47003 a minute later.
var subscriptionLimits = map[string]int{
	"thing": 20, "character_string": 32, "letter": 32, "number": 32, "symbol": 5,
	"phrase": 5, "phone_number": 17, "car_number": 8, "name": 20,
}

// check reports the first field that cannot be right, and the time from
// expires_at, which is zero if there is none.
func (r *Request) check(now time.Time) (expires time.Time, err error) {
	switch {
	case r.Account == "":
		return expires, invalid("account", "name the account to send from")
	case r.Kind != wire.PushTemplate && r.Kind != wire.PushSubscription:
		return expires, invalid("kind", "use %q or %q", wire.PushTemplate, wire.PushSubscription)
	case r.Lane != wire.LaneRealtime && r.Lane != wire.LaneBulk:
		return expires, invalid("lane", "use %q or %q", wire.LaneRealtime, wire.LaneBulk)
	case !wire.ValidOpenID(r.OpenID):
		return expires, invalid("openid", "give the follower's openid: 1 to 64 of A-Z, a-z, 0-9, _ and -")
	case !templateID.MatchString(r.TemplateID):
		return expires, invalid("template_id", "give the template's id: 1 to 64 of A-Z, a-z, 0-9, _ and -")
	case r.Reference != "" && !text(r.Reference, maxReference, false):
		return expires, invalid("reference", "use at most %d characters without control characters", maxReference)
	}
	if err := r.checkData(); err != nil {
		return expires, err
	}
	if err := r.checkJump(); err != nil {
		return expires, err
	}
	return r.checkExpiry(now)
}

func (r *Request) checkData() error {
	if len(r.Data) == 0 {
		return invalid("data", "give the template's values, for example {\"thing1\": \"…\"}")
	}
	if len(r.Data) > maxDataKeys {
		return invalid("data", "%d keys: at most %d are possible", len(r.Data), maxDataKeys)
	}
	keys := make([]string, 0, len(r.Data))
	for k := range r.Data {
		keys = append(keys, k)
	}
	sort.Strings(keys) // the same request names the same field each time
	total := 0
	for _, k := range keys {
		if !dataKey.MatchString(k) {
			return invalid("data", "%.40q is no key of a template: use a letter and then up to 31 letters, digits or _", k)
		}
		v := r.Data[k]
		total += len(v)
		if !text(v, maxValue, true) {
			return invalid("data."+k, "use at most %d characters; of control characters only line breaks are possible", maxValue)
		}
		if err := r.checkTyped(k, v); err != nil {
			return err
		}
	}
	if total > maxData {
		return invalid("data", "%d bytes of values: at most %d are possible", total, maxData)
	}
	return nil
}

func (r *Request) checkTyped(k, v string) error {
	if r.Kind != wire.PushSubscription {
		return nil
	}
	m := typedKey.FindStringSubmatch(k)
	if m == nil {
		return nil
	}
	limit, ok := subscriptionLimits[m[1]]
	if n := utf8.RuneCountInString(v); ok && n > limit {
		return invalid("data."+k, "%d characters: WeChat takes at most %d for %s", n, limit, m[1])
	}
	return nil
}

// checkJump looks at where a tap on the message leads.
func (r *Request) checkJump() error {
	if r.URL != "" {
		if r.Kind == wire.PushSubscription {
			return invalid("url", "a subscription message opens a page: use page")
		}
		if err := checkURL(r.URL); err != nil {
			return err
		}
	}
	if r.Page != "" {
		if r.Kind == wire.PushTemplate {
			return invalid("page", "a template message opens a url: use url, or mini_app_id with mini_path")
		}
		if err := checkPath("page", r.Page); err != nil {
			return err
		}
	}
	if r.MiniAppID != "" && !miniAppID.MatchString(r.MiniAppID) {
		return invalid("mini_app_id", "give the mini program's appid: wx and 16 of 0-9, a-f")
	}
	if r.MiniPath != "" {
		if r.MiniAppID == "" {
			return invalid("mini_path", "it needs mini_app_id")
		}
		return checkPath("mini_path", r.MiniPath)
	}
	return nil
}

func checkPath(field, path string) error {
	if len(path) > maxPath || !text(path, maxPath, false) || strings.ContainsRune(path, ' ') {
		return invalid(field, "give a path of at most %d bytes without spaces", maxPath)
	}
	return nil
}

func checkURL(s string) error {
	if len(s) > maxURL {
		return invalid("url", "%d bytes: at most %d are possible", len(s), maxURL)
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsFunc(s, unicode.IsSpace) {
		return invalid("url", "give an absolute address that begins with http:// or https://")
	}
	if u.User != nil {
		return invalid("url", "an address with a user name or password is not sent")
	}
	return nil
}

func (r *Request) checkExpiry(now time.Time) (time.Time, error) {
	if r.ExpiresAt == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, r.ExpiresAt)
	switch {
	case err != nil:
		return time.Time{}, invalid("expires_at", "give a time as in RFC 3339, for example 2026-12-24T18:00:00+08:00")
	case !t.After(now):
		return time.Time{}, invalid("expires_at", "this time has passed")
	case t.After(now.Add(maxAhead)):
		return time.Time{}, invalid("expires_at", "at most %d days ahead are possible", int(maxAhead/(24*time.Hour)))
	}
	return t, nil
}

// text reports whether s is clean text of at most limit characters.
func text(s string, limit int, lineBreaks bool) bool {
	if !utf8.ValidString(s) || utf8.RuneCountInString(s) > limit {
		return false
	}
	for _, c := range s {
		if unicode.IsControl(c) && !(lineBreaks && c == '\n') {
			return false
		}
	}
	return true
}

func printable(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
