package backend

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
)

// Config is one back end of the robot's section. Whatever is left out or zero
// takes its default; BaseURL and Name have none.
type Config struct {
	// Name is what rules call it: up to 40 of a-z, 0-9, _ and -.
	Name string `koanf:"name"`
	// Type is http (the default), or wechat for a bot that answers WeChat today.
	Type string `koanf:"type"`
	// Bot says how a back end of type wechat is spoken to.
	Bot BotConfig `koanf:"bot"`
	// BaseURL is the address that the paths of rules are put behind, such as
	// https://core.bank.example/wechat.
	BaseURL string `koanf:"base_url"`
	// Authorization is the value of the Authorization header, whole, such as
	// "Bearer …"; empty sends none.
	Authorization string `koanf:"authorization" secret:"true"`
	// Headers are sent with every call. Keys of APIs travel in headers, so the
	// values are kept secret.
	Headers map[string]string `koanf:"headers" secret:"true"`
	// CAFile holds PEM certificates that sign this back end's; empty trusts
	// the system's. There is no switch to trust everybody.
	CAFile string `koanf:"ca_file"`
	// Timeout bounds one try, from dialling to the last byte.
	Timeout time.Duration `koanf:"timeout"`
	// Attempts is the number of tries, 1 for no retry. WeChat itself makes three
	// within 5 s each, which is the default here as well.
	Attempts int `koanf:"attempts"`
	// BackoffMin and BackoffMax bound the pause before a retry: a random time
	// up to a bound that doubles. A Retry-After of the back end is kept up to
	// BackoffMax.
	BackoffMin time.Duration `koanf:"backoff_min"`
	BackoffMax time.Duration `koanf:"backoff_max"`
	// RetryStatuses are the HTTP statuses that are worth another try.
	RetryStatuses []int `koanf:"retry_statuses"`
	// IgnoresKey says that the back end does not remember Idempotency-Key, so
	// that a call which may have been done must not be made again.
	IgnoresKey bool `koanf:"ignores_idempotency_key"`
	// MaxResponse bounds an answer's body in bytes.
	MaxResponse int64 `koanf:"max_response"`
	// Rate, Burst and Concurrency cap the calls (requests per second, calls at
	// once); retries count.
	Rate        float64 `koanf:"rate"`
	Burst       int     `koanf:"burst"`
	Concurrency int     `koanf:"concurrency"`
	// Guard shares answers over all robots and gates calls.
	Guard GuardConfig `koanf:"guard"`
}

// DefaultConfig has everything but the name and the address.
func DefaultConfig() Config {
	return Config{
		Timeout: 5 * time.Second, Attempts: 3, BackoffMin: 100 * time.Millisecond, BackoffMax: 2 * time.Second,
		RetryStatuses: []int{429, 500, 502, 503, 504}, MaxResponse: 1 << 20,
		Rate: 100, Burst: 10, Concurrency: 20,
	}
}

// WithDefaults fills in what was left out.
func (c Config) WithDefaults() Config {
	d := DefaultConfig()
	fill(&c.Timeout, d.Timeout)
	fill(&c.Attempts, d.Attempts)
	fill(&c.BackoffMin, d.BackoffMin)
	fill(&c.BackoffMax, max(d.BackoffMax, c.BackoffMin))
	fill(&c.Rate, d.Rate)
	fill(&c.Burst, d.Burst)
	fill(&c.Concurrency, d.Concurrency)
	fill(&c.Type, TypeHTTP)
	if c.Type == TypeWeChat {
		fill(&c.MaxResponse, MaxPassive)
		fill(&c.Bot.Mode, wechat.ModeSafe)
	}
	fill(&c.MaxResponse, d.MaxResponse)
	if c.RetryStatuses == nil {
		c.RetryStatuses = d.RetryStatuses
	}
	return c
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// The forms of RFC 9110, 5.1 and 5.5, without obsolete text.
var (
	backendName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)
	headerName  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
	headerValue = regexp.MustCompile(`^[\t\x20-\x7e]*$`)
)

// headerForbidden are the headers that the client sets itself.
var headerForbidden = regexp.MustCompile(`(?i)^(host|content-length|transfer-encoding|connection|te|trailer|upgrade|idempotency-key|content-type|accept|accept-encoding|traceparent)$`)

// Validate checks a back end. Errors name the field after the last dot of its
// configuration key.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if !backendName.MatchString(c.Name) {
		return invalid("name", "%q: use up to 40 of a-z, 0-9, _ and -, beginning with a letter or digit", c.Name)
	}
	if _, err := c.base(); err != nil {
		return err
	}
	if err := errors.Join(c.validateType(), c.validateGuard()); err != nil {
		return err
	}
	for name, value := range c.Headers {
		if !headerName.MatchString(name) || !headerValue.MatchString(value) || headerForbidden.MatchString(name) {
			return invalid("headers", "%q: use a plain header name and value; Host, Content-* and Idempotency-Key are set by the robot", name)
		}
		if strings.EqualFold(name, "Authorization") {
			return invalid("headers", "put Authorization into authorization, where it is kept secret")
		}
	}
	if !headerValue.MatchString(c.Authorization) {
		return invalid("authorization", "it holds characters that no header may carry, perhaps a line break at the end of the file")
	}
	if c.CAFile != "" {
		if _, err := c.roots(); err != nil {
			return err
		}
	}
	return c.validateBounds()
}

func (c Config) validateBounds() error {
	switch {
	case c.Timeout < 10*time.Millisecond || c.Timeout > 30*time.Second:
		return invalid("timeout", "%s: use 10ms to 30s", c.Timeout)
	case c.Attempts < 1 || c.Attempts > 10:
		return invalid("attempts", "%d: use 1 to 10", c.Attempts)
	case c.BackoffMin <= 0 || c.BackoffMax < c.BackoffMin || c.BackoffMax > 30*time.Second:
		return invalid("backoff_min", "%s to %s: backoff_min must be above 0 and backoff_max between it and 30s", c.BackoffMin, c.BackoffMax)
	case c.MaxResponse < 1<<10 || c.MaxResponse > 8<<20:
		return invalid("max_response", "%d: use 1024 to 8388608 bytes", c.MaxResponse)
	case !(c.Rate > 0 && c.Rate <= 1e6):
		return invalid("rate", "%v: use more than 0 and at most 1000000 calls a second", c.Rate)
	case c.Burst < 1 || c.Burst > 1_000_000:
		return invalid("burst", "%d: use 1 to 1000000", c.Burst)
	case c.Concurrency < 1 || c.Concurrency > 10_000:
		return invalid("concurrency", "%d: use 1 to 10000 calls at once", c.Concurrency)
	}
	for _, s := range c.RetryStatuses {
		if s != http.StatusTooManyRequests && s != http.StatusRequestTimeout && s != http.StatusTooEarly && s != http.StatusConflict && (s < 500 || s > 599) {
			return invalid("retry_statuses", "%d: only 408, 409, 425, 429 and 5xx can pass by themselves", s)
		}
	}
	return nil
}

func (c Config) base() (*url.URL, error) {
	u, err := url.Parse(c.BaseURL)
	switch {
	case c.BaseURL == "":
		return nil, invalid("base_url", "it is empty: write the address of the back end, such as http://core.internal:8080")
	case err != nil:
		return nil, invalid("base_url", "it is no address: write it like http://core.internal:8080")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, invalid("base_url", "it must begin with http:// or https:// and name a host")
	case u.User != nil:
		return nil, invalid("base_url", "remove user and password; put credentials into authorization")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, invalid("base_url", "remove ? and #; rules add the query")
	}
	return u, nil
}

func (c Config) roots() (*x509.CertPool, error) {
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, invalid("ca_file", "%w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, invalid("ca_file", "%s holds no certificate in PEM form", c.CAFile)
	}
	return pool, nil
}

func (c Config) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile == "" {
		return t, nil
	}
	pool, err := c.roots()
	t.RootCAs = pool
	return t, err
}

func invalid(field, format string, args ...any) error {
	return fault.New(fault.Invalid, field, "%w", fmt.Errorf(format, args...)).WithField(field)
}

// Limit is the cap on calls, for pkg/ratelimit.
func (c Config) Limit() ratelimit.Limit {
	c = c.WithDefaults()
	return ratelimit.Limit{Rate: c.Rate, Burst: c.Burst, Concurrency: c.Concurrency}
}
