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
	"tidegate/sender/catalogue"
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
)

// check reports the first field that cannot be right, and when the message may go.
func (r *Request) check(now time.Time) (span, error) {
	switch {
	case r.Account == "":
		return span{}, invalid("account", "name the account to send from")
	case r.Kind != wire.PushTemplate && r.Kind != wire.PushSubscription && r.Kind != wire.PushCustom:
		return span{}, invalid("kind", "use %q, %q or %q", wire.PushTemplate, wire.PushSubscription, wire.PushCustom)
	case r.Lane != wire.LaneRealtime && r.Lane != wire.LaneBulk:
		return span{}, invalid("lane", "use %q or %q", wire.LaneRealtime, wire.LaneBulk)
	case !wire.ValidOpenID(r.OpenID):
		return span{}, invalid("openid", "give the follower's openid: 1 to 64 of A-Z, a-z, 0-9, _ and -")
	case r.Reference != "" && !text(r.Reference, maxReference, false):
		return span{}, invalid("reference", "use at most %d characters without control characters", maxReference)
	}
	body := r.checkTemplated
	if r.Kind == wire.PushCustom {
		body = r.checkCustom
	}
	if err := body(); err != nil {
		return span{}, err
	}
	return r.checkSpan(now)
}

// checkTemplated looks at what template and subscription messages consist of.
func (r *Request) checkTemplated() error {
	switch {
	case !templateID.MatchString(r.TemplateID):
		return invalid("template_id", "give the template's id: 1 to 64 of A-Z, a-z, 0-9, _ and -")
	case r.Content != nil:
		return invalid("content", "it belongs to kind %q: use template_id and data", wire.PushCustom)
	case r.Class != "":
		return invalid("class", "it belongs to kind %q: WeChat recognises a repeat of the others", wire.PushCustom)
	}
	if err := r.checkData(); err != nil {
		return err
	}
	return r.checkJump()
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
		return nil // of a template message the template decides: older ones have free keys
	}
	if why := catalogue.Misfit(k, v); why != "" {
		return invalid("data."+k, "%s", why)
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

// span is when a message may go; zero times are open ends.
type span struct{ from, to time.Time }

func (r *Request) checkSpan(now time.Time) (span, error) {
	from, err := timeOf("not_before", r.NotBefore, now)
	if err != nil {
		return span{}, err
	}
	to, err := timeOf("expires_at", r.ExpiresAt, now)
	switch {
	case err != nil:
		return span{}, err
	case !to.IsZero() && !to.After(now):
		return span{}, invalid("expires_at", "this time has passed")
	case !to.IsZero() && !to.After(from):
		return span{}, invalid("expires_at", "it is not behind not_before: the message could never go")
	}
	return span{from: from, to: to}, nil
}

func timeOf(field, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil || t.Year() < 1970:
		return time.Time{}, invalid(field, "give a time as in RFC 3339, for example 2026-12-24T18:00:00+08:00")
	case t.After(now.Add(maxAhead)):
		return time.Time{}, invalid(field, "at most %d days ahead are possible", int(maxAhead/(24*time.Hour)))
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
