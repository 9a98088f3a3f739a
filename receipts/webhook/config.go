package webhook

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/outhttp"
	"tidegate/pkg/wire"
)

// Config is the section receipts.webhooks. Zero values stand for the defaults.
type Config struct {
	// Apps are the business systems that are told; without any there are no
	// webhooks.
	Apps []AppConfig `koanf:"apps"`
	// Allow names what may be called although it is not public: ranges,
	// addresses, host names.
	Allow []string `koanf:"allow"`
	// CAFile holds certificates that are trusted instead of the system's.
	CAFile string `koanf:"ca_file"`
	// Timeout bounds one attempt.
	Timeout time.Duration `koanf:"timeout"`
	// Concurrency bounds the calls at once of one node to one endpoint.
	Concurrency int `koanf:"concurrency"`
	// RetryFirst is the pause behind the first failure; it doubles up to RetryMax.
	RetryFirst time.Duration `koanf:"retry_first"`
	RetryMax   time.Duration `koanf:"retry_max"`
	// GiveUpAfter is how old an event gets before it counts as failed.
	GiveUpAfter time.Duration `koanf:"give_up_after"`
	// DisableAfter is how long an endpoint may fail without one success.
	DisableAfter time.Duration `koanf:"disable_after"`
	// KeepDelivered and KeepFailed are how long events can be delivered again.
	KeepDelivered time.Duration `koanf:"keep_delivered"`
	KeepFailed    time.Duration `koanf:"keep_failed"`
}

// AppConfig is one business system, by the name of its keys.
type AppConfig struct {
	Name string `koanf:"name"`
	// URL is told of every message of the app. Empty: only pushes with a
	// callback_url are told of.
	URL string `koanf:"url" secret:"true"`
	// Secret signs; PrevSecret signs as well while receivers change over.
	Secret     string `koanf:"secret" secret:"true"`
	PrevSecret string `koanf:"prev_secret" secret:"true"`
	// CallbackHosts are the hosts, with the port if it is no usual one, that a
	// push of the app may name in callback_url.
	CallbackHosts []string `koanf:"callback_hosts"`
	// Events are the states that are told; empty is all but queued and sending.
	Events []string `koanf:"events"`
}

// DefaultConfig has no apps.
func DefaultConfig() Config {
	return Config{
		Timeout: 10 * time.Second, Concurrency: 8, RetryFirst: 5 * time.Second, RetryMax: time.Hour, GiveUpAfter: 24 * time.Hour,
		DisableAfter: 12 * time.Hour, KeepDelivered: 24 * time.Hour, KeepFailed: 7 * 24 * time.Hour,
	}
}

const (
	maxApps  = 200
	maxHosts = 32
	maxURL   = 2048
)

// appForm is the form of an app's name where its keys are made.
var appForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// Validate reports the first setting that cannot work.
func (c Config) Validate() error {
	bad := func(field, format string, args ...any) error {
		field = "receipts.webhooks." + field
		return fault.New(fault.Invalid, "check webhook settings", field+": %w", fmt.Errorf(format, args...)).WithField(field)
	}
	if field, why := c.checkTimes(); field != "" {
		return bad(field, "%s", why)
	}
	if len(c.Apps) > maxApps {
		return bad("apps", "there are %d: use at most %d", len(c.Apps), maxApps)
	}
	calls, err := c.client()
	if err != nil {
		return bad("allow", "%w", err)
	}
	defer calls.Close()
	seen := map[string]bool{}
	for i, a := range c.Apps {
		at := fmt.Sprintf("apps[%d]", i)
		if seen[a.Name] {
			return bad(at+".name", "%s is there twice", a.Name)
		}
		seen[a.Name] = true
		if field, err := a.check(calls); err != nil {
			return bad(at+"."+field, "%w", err)
		}
	}
	return nil
}

func (c Config) checkTimes() (field, why string) {
	switch {
	case c.Timeout < 100*time.Millisecond || c.Timeout > time.Minute:
		return "timeout", "use 100ms to 1m"
	case c.Concurrency < 1 || c.Concurrency > 256:
		return "concurrency", "use 1 to 256"
	case c.RetryFirst < 100*time.Millisecond || c.RetryFirst > c.RetryMax:
		return "retry_first", "use at least 100ms, and not more than retry_max"
	case c.RetryMax > 24*time.Hour:
		return "retry_max", "use at most 24h"
	case c.GiveUpAfter < time.Minute || c.GiveUpAfter > 7*24*time.Hour:
		return "give_up_after", "use 1m to 168h"
	case c.DisableAfter < time.Minute:
		return "disable_after", "use at least 1m"
	case c.KeepDelivered < time.Minute || c.KeepDelivered > 90*24*time.Hour:
		return "keep_delivered", "use 1m to 2160h"
	case c.KeepFailed < time.Minute || c.KeepFailed > 90*24*time.Hour:
		return "keep_failed", "use 1m to 2160h"
	}
	return "", ""
}

func (c Config) client() (*outhttp.Client, error) {
	return outhttp.New(outhttp.Options{Allow: c.Allow, CAFile: c.CAFile, Timeout: c.Timeout, MaxResponse: 64 << 10, Conns: c.Concurrency})
}

func (a AppConfig) check(calls *outhttp.Client) (field string, err error) {
	if !appForm.MatchString(a.Name) {
		return "name", fmt.Errorf("%.60q is no name of an app: 'tidegate apps list' shows them", a.Name)
	}
	if a.URL == "" && len(a.CallbackHosts) == 0 {
		return "url", fmt.Errorf("give an address, or callback_hosts that pushes may name")
	}
	if a.URL != "" {
		if len(a.URL) > maxURL {
			return "url", fmt.Errorf("it is longer than %d bytes", maxURL)
		}
		if err := calls.Check(a.URL); err != nil {
			return "url", err
		}
	}
	if _, err := parseSecret(a.Secret); err != nil {
		return "secret", err
	}
	if a.PrevSecret != "" {
		if _, err := parseSecret(a.PrevSecret); err != nil {
			return "prev_secret", err
		}
	}
	if len(a.CallbackHosts) > maxHosts {
		return "callback_hosts", fmt.Errorf("there are %d: use at most %d", len(a.CallbackHosts), maxHosts)
	}
	for _, h := range a.CallbackHosts {
		if u, err := url.Parse("https://" + h); err != nil || u.Host != h || strings.ToLower(h) != h || u.Path != "" || u.User != nil {
			return "callback_hosts", fmt.Errorf("%.80q: write a host in small letters, with :port if it has an unusual one", h)
		}
	}
	for _, e := range a.Events {
		if _, ok := wire.State(e).Info(); !ok || !slices.Contains(offered(), e) {
			return "events", fmt.Errorf("%.40q is no state of a push: use some of %v", e, offered())
		}
	}
	return "", nil
}

// offered are the states that apps can be told of: those of pushes.
func offered() []string {
	var out []string
	for _, s := range wire.States() {
		switch s.State {
		case wire.Answered, wire.NotAnswered, wire.Repeated:
		default:
			out = append(out, string(s.State))
		}
	}
	return out
}

// CheckCallback tells what is wrong with the callback_url of an app's push; nil
// if it may be called. It is asked when the event is written: the intake lies in
// another process, which knows only what may be called at all.
func (c Config) CheckCallback(app, raw string) error {
	const op, field = "check callback_url", "callback_url"
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, op, format, args...).WithField(field)
	}
	i := slices.IndexFunc(c.Apps, func(a AppConfig) bool { return a.Name == app })
	if i < 0 {
		return bad("webhooks of the app %s are not configured: ask the operator", app)
	}
	u, err := url.Parse(raw)
	if err != nil || len(raw) > maxURL || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return bad("it is no address of http or https of up to %d bytes", maxURL)
	}
	if !slices.Contains(c.Apps[i].CallbackHosts, hostOf(u)) {
		return bad("the host is not one that pushes of the app may name: ask the operator to add it to callback_hosts")
	}
	return nil
}

// hostOf is a URL's host as callback_hosts has it: small letters, no usual port.
func hostOf(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" || port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
			return "[" + host + "]"
		}
		return host
	}
	return net.JoinHostPort(host, port)
}
