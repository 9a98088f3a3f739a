package binding

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"tidegate/pkg/guard"
)

// Config is the section robot.binding.
type Config struct {
	// Backend names the back end that knows who is bound; "" switches bindings off.
	Backend string `koanf:"backend"`
	// Path is where it answers about one follower: GET gives {"user": "…"} or 404,
	// PUT takes {"user": "…"}, DELETE ends the binding.
	Path string `koanf:"path"`
	// UserPath is where it tells the followers of one user: GET gives
	// {"openids": ["…"]} or 404.
	UserPath string `koanf:"user_path"`
	// TTL is how long an answer is kept.
	TTL time.Duration `koanf:"ttl"`
	// Key seals what is kept in Redis: 32 random bytes in base64, the same on all
	// robots. Without one nothing is kept and every lookup asks the back end.
	Key string `koanf:"key" secret:"true"`
	// Gate is how many lookups and writes may be under way at once over all robots,
	// Nodes the largest number of robots.
	Gate  int `koanf:"gate"`
	Nodes int `koanf:"nodes"`
}

// DefaultConfig has no back end.
func DefaultConfig() Config {
	return Config{Path: "/v1/bindings/{account}/{openid}", UserPath: "/v1/users/{user}/bindings/{account}", TTL: 10 * time.Minute, Gate: 50, Nodes: 8}
}

// Validate reports every setting that cannot work.
func (c Config) Validate() error {
	if c.Backend == "" {
		return nil
	}
	errs := []error{
		checkPath("path", c.Path, "{account}", "{openid}"),
		checkPath("user_path", c.UserPath, "{account}", "{user}"),
	}
	if err := c.guard().Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkPath wants each place-holder once, as a segment of its own, and no other.
func checkPath(field, path string, holders ...string) error {
	if len(path) > 512 || !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.ContainsAny(path, "?# %\\") {
		return fmt.Errorf("%s: %.60q: begin with one / and leave out ?, #, %% and blanks", field, path)
	}
	seen := map[string]bool{}
	for _, s := range strings.Split(path[1:], "/") {
		holder := strings.ContainsAny(s, "{}")
		known := false
		for _, h := range holders {
			known = known || s == h
		}
		if s == "." || s == ".." || holder && (!known || seen[s]) {
			return fmt.Errorf("%s: %.60q: use each of %s once, as a part between two slashes, and no other {…}", field, path, strings.Join(holders, " and "))
		}
		seen[s] = seen[s] || holder
	}
	if !seen[holders[1]] {
		return fmt.Errorf("%s: %.60q: %s is missing", field, path, holders[1])
	}
	return nil
}

// guard protects always: a binding is asked for with every message.
func (c Config) guard() guard.Config {
	g := guard.DefaultConfig()
	g.Backend, g.Threshold = "binding", 0
	g.TTL, g.Gate, g.Nodes = c.TTL, c.Gate, c.Nodes
	g.CachePersonal, g.Key = c.Key != "", c.Key
	g.MaxValue, g.MaxResources = 4<<10, 1_000_000
	return g
}

func fill(path, account, holder, value string) string {
	path = strings.Replace(path, "{account}", url.PathEscape(account), 1)
	return strings.Replace(path, holder, url.PathEscape(value), 1)
}
