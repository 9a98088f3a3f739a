package plugin

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
)

// Config is one engine of robot.engines. Whatever is left out or zero takes its
// default; Name, URL and Secret have none.
type Config struct {
	// Name is what rules call it.
	Name string `koanf:"name"`
	// URL is where it is asked, whole.
	URL string `koanf:"url" secret:"true"`
	// Secret signs the requests; PrevSecret signs them as well while it is being
	// changed. "whsec_" and base64, or any text of 16 characters or more.
	Secret     string `koanf:"secret" secret:"true"`
	PrevSecret string `koanf:"prev_secret" secret:"true"`
	// Allow names what may be reached although it is not public: ranges,
	// addresses, host names.
	Allow []string `koanf:"allow"`
	// CAFile holds PEM certificates that sign the engine's; empty trusts the
	// system's.
	CAFile string `koanf:"ca_file"`
	// Timeout bounds one try, from looking up the name to the last byte.
	Timeout time.Duration `koanf:"timeout"`
	// Attempts is the number of tries when nothing came back or the engine says
	// 429 or 503.
	Attempts int `koanf:"attempts"`
	// MaxResponse bounds an answer's body in bytes.
	MaxResponse int64 `koanf:"max_response"`
	// Rate, Burst and Concurrency cap the requests of this process.
	Rate        float64 `koanf:"rate"`
	Burst       int     `koanf:"burst"`
	Concurrency int     `koanf:"concurrency"`
}

// DefaultConfig has everything but name, address and secret.
func DefaultConfig() Config {
	return Config{Timeout: 5 * time.Second, Attempts: 2, MaxResponse: 64 << 10, Rate: 100, Burst: 10, Concurrency: 32}
}

// WithDefaults fills in what was left out.
func (c Config) WithDefaults() Config {
	d := DefaultConfig()
	fill(&c.Timeout, d.Timeout)
	fill(&c.Attempts, d.Attempts)
	fill(&c.MaxResponse, d.MaxResponse)
	fill(&c.Rate, d.Rate)
	fill(&c.Burst, d.Burst)
	fill(&c.Concurrency, d.Concurrency)
	return c
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

var engineName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// Validate checks an engine; addresses are not looked up.
func (c Config) Validate() error {
	c = c.WithDefaults()
	switch {
	case !engineName.MatchString(c.Name):
		return invalid("name", "%q: use up to 40 of a-z, 0-9, _ and -, beginning with a letter or digit", c.Name)
	case c.URL == "":
		return invalid("url", "it is empty: write the address that is to be asked, such as https://bot.example.com/tidegate")
	case c.Secret == "":
		return invalid("secret", "it is empty: an engine must be able to tell who asks; 'openssl rand -base64 32' makes one")
	case c.Timeout < 10*time.Millisecond || c.Timeout > 30*time.Second:
		return invalid("timeout", "%s: use 10ms to 30s", c.Timeout)
	case c.Attempts < 1 || c.Attempts > 5:
		return invalid("attempts", "%d: use 1 to 5", c.Attempts)
	case c.MaxResponse < 1<<10 || c.MaxResponse > 1<<20:
		return invalid("max_response", "%d: use 1024 to 1048576 bytes", c.MaxResponse)
	case !(c.Rate > 0 && c.Rate <= 1e6):
		return invalid("rate", "%v: use more than 0 and at most 1000000 requests a second", c.Rate)
	case c.Burst < 1 || c.Burst > 1_000_000:
		return invalid("burst", "%d: use 1 to 1000000", c.Burst)
	case c.Concurrency < 1 || c.Concurrency > 1000:
		return invalid("concurrency", "%d: use 1 to 1000 requests at once", c.Concurrency)
	}
	for name, s := range map[string]string{"secret": c.Secret, "prev_secret": c.PrevSecret} {
		if _, err := secretBytes(s); err != nil {
			return invalid(name, "%w", err)
		}
	}
	_, err := c.client(nil)
	return err
}

// secretBytes reads a secret in the form of Standard Webhooks, or as it is.
func secretBytes(s string) ([]byte, error) {
	coded, ok := strings.CutPrefix(s, "whsec_")
	if !ok {
		if s != "" && len(s) < 16 {
			return nil, fmt.Errorf("it has %d characters, use at least 16", len(s))
		}
		return []byte(s), nil
	}
	b, err := base64.StdEncoding.DecodeString(coded)
	if err != nil || len(b) < 16 {
		return nil, fmt.Errorf("after whsec_ comes base64 of at least 16 bytes")
	}
	return b, nil
}

func invalid(field, format string, args ...any) error {
	return fault.New(fault.Invalid, field, "%w", fmt.Errorf(format, args...)).WithField(field)
}

// Limit is the cap on requests, for pkg/ratelimit.
func (c Config) Limit() ratelimit.Limit {
	c = c.WithDefaults()
	return ratelimit.Limit{Rate: c.Rate, Burst: c.Burst, Concurrency: c.Concurrency}
}
