package line

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"time"

	"tidegate/pkg/wechat"
)

// Config is one line.
type Config struct {
	// Name is ours: for metrics, receipts and orders.
	Name string `koanf:"name"`
	// BaseURL is one of WeChat's addresses, scheme and host.
	BaseURL string `koanf:"base_url"`
	// Proxy is the HTTP proxy to go through, such as http://user:password@host:3128;
	// empty goes directly.
	Proxy string `koanf:"proxy" secret:"true"`
}

// Health says when a line is left and when it is taken again.
type Health struct {
	// ConnectTimeout bounds making a connection.
	ConnectTimeout time.Duration `koanf:"connect_timeout"`
	// ProbeEvery is how often a line that nobody uses is looked at.
	ProbeEvery time.Duration `koanf:"probe_every"`
	// Hold is how long a line that was lost must answer before it is taken again.
	Hold time.Duration `koanf:"hold"`
}

// DefaultHealth leaves a dead line within two seconds. A connection gets a little
// more than the second after which the kernel repeats a lost first packet.
func DefaultHealth() Health {
	return Health{ConnectTimeout: 1500 * time.Millisecond, ProbeEvery: 5 * time.Second, Hold: 30 * time.Second}
}

// Validate names the first setting that cannot work.
func (h Health) Validate() error {
	switch {
	case h.ConnectTimeout < 50*time.Millisecond || h.ConnectTimeout > 10*time.Second:
		return fmt.Errorf("connect_timeout %s: use 50ms to 10s", h.ConnectTimeout)
	case h.ProbeEvery < 100*time.Millisecond || h.ProbeEvery > 10*time.Minute:
		return fmt.Errorf("probe_every %s: use 100ms to 10m", h.ProbeEvery)
	case h.Hold < 0 || h.Hold > 24*time.Hour:
		return fmt.Errorf("hold %s: use 0s to 24h", h.Hold)
	}
	return nil
}

// maxLines bounds labels and looks.
const maxLines = 16

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Validate names the first line that cannot work. It never shows a proxy's
// address, which may hold a password.
func Validate(lines []Config) error {
	if len(lines) == 0 || len(lines) > maxLines {
		return fmt.Errorf("%d lines: name 1 to %d", len(lines), maxLines)
	}
	seen := map[string]bool{}
	for i, l := range lines {
		err := l.validate()
		if err == nil && seen[l.Name] {
			err = errors.New("the name is there twice")
		}
		if err != nil {
			return fmt.Errorf("[%d] (%.40s): %w", i, l.Name, err)
		}
		seen[l.Name] = true
	}
	return nil
}

func (c Config) validate() error {
	if !nameForm.MatchString(c.Name) {
		return errors.New("name: use 1 to 63 of a-z, 0-9, dot, _ and -, beginning with a letter or digit")
	}
	if err := (wechat.Options{BaseURLs: []string{c.BaseURL}}).Validate(); err != nil {
		return fmt.Errorf("base_url: %w", err)
	}
	_, err := c.ProxyURL()
	return err
}

// ProxyURL reads the proxy's address; nil means that there is none.
func (c Config) ProxyURL() (*url.URL, error) {
	if c.Proxy == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Proxy)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("proxy: use http://host:port, https:// or socks5://, with user:password@ before the host where it asks for them")
	}
	return u, nil
}

// CheckOrder says whether an account may have this order of lines. An empty one
// is the configuration's.
func CheckOrder(lines []Config, order []string) error {
	for i, name := range order {
		if !slices.ContainsFunc(lines, func(l Config) bool { return l.Name == name }) {
			return fmt.Errorf("lines[%d]: there is no line %.63q in wechat.lines", i, name)
		}
		if slices.Contains(order[:i], name) {
			return fmt.Errorf("lines[%d]: the line %s is there twice", i, name)
		}
	}
	return nil
}

// Of gives lines without proxies, named after their hosts.
func Of(baseURLs []string) []Config {
	out := make([]Config, 0, len(baseURLs))
	seen := map[string]bool{}
	for _, base := range baseURLs {
		c := Config{Name: "line", BaseURL: base}
		if u, err := url.Parse(base); err == nil && u.Hostname() != "" {
			c.Name = u.Hostname()
			if seen[c.Name] || !nameForm.MatchString(c.Name) {
				c.Name = fmt.Sprintf("line-%d", len(out)+1)
			}
		}
		seen[c.Name] = true
		out = append(out, c)
	}
	return out
}
