package guard

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"time"

	"tidegate/pkg/slice"
)

// Where the life of a cached value begins.
const (
	StartFetch      = "fetch"      // when it was fetched: no value is served that is older than TTL
	StartActivation = "activation" // when protection began, for values from before: the paper's letter
)

// Config is one back end's guard. Start from DefaultConfig.
type Config struct {
	// Backend names the back end among those that share a Redis.
	Backend string `koanf:"backend"`

	// Threshold is the demand of a Window, over all nodes, above which protection
	// begins; 0 protects always.
	Threshold int64         `koanf:"threshold"`
	Window    time.Duration `koanf:"window"`
	Slices    int           `koanf:"slices"`
	// Protection ends when the demand has stayed below ExitRatio × Threshold for ExitHold.
	ExitRatio float64       `koanf:"exit_ratio"`
	ExitHold  time.Duration `koanf:"exit_hold"`

	// TTL is the life of a value, from TTLStart on.
	TTL      time.Duration `koanf:"ttl"`
	TTLStart string        `koanf:"ttl_start"`
	// StaleGrace is how long after its life a value may stand in for one that
	// cannot be had in time; 0 is never.
	StaleGrace time.Duration `koanf:"stale_grace"`
	// FailTTL is how long a failed fetch keeps others from trying.
	FailTTL time.Duration `koanf:"fail_ttl"`
	// TokenTimeout bounds a fetch, and the wait for a holder that died.
	TokenTimeout time.Duration `koanf:"token_timeout"`

	// WaitMax bounds how long a caller waits, MaxWaiting how many do on a node.
	WaitMax    time.Duration `koanf:"wait_max"`
	MaxWaiting int           `koanf:"max_waiting"`
	// Gate is how many fetches may run at once over all nodes.
	Gate int `koanf:"gate"`
	// Nodes is the largest number of nodes: without news of the others each takes
	// its share of gate and threshold by it.
	Nodes int `koanf:"nodes"`

	// BreakAfter failures in a row close the way to the back end for BreakFor.
	BreakAfter int           `koanf:"break_after"`
	BreakFor   time.Duration `koanf:"break_for"`

	// MaxResources bounds the values of the back end, MaxValue one of them in
	// bytes, LocalBytes those that a node holds while Redis is away.
	MaxResources int   `koanf:"max_resources"`
	MaxValue     int   `koanf:"max_value"`
	LocalBytes   int64 `koanf:"local_bytes"`

	// CachePersonal lets personal values be cached, encrypted with Key: 32 bytes in
	// base64, the same on all nodes.
	CachePersonal bool   `koanf:"cache_personal"`
	Key           string `koanf:"key" secret:"true"`

	// Budget bounds one question to Redis.
	Budget time.Duration `koanf:"budget"`
}

// DefaultConfig is a guard that begins at 500 requests a second and then shows
// values of up to two seconds.
func DefaultConfig() Config {
	return Config{
		Threshold: 500, Window: time.Second, Slices: 10, ExitRatio: 0.8, ExitHold: 5 * time.Second,
		TTL: 2 * time.Second, TTLStart: StartFetch, FailTTL: time.Second, TokenTimeout: 10 * time.Second,
		WaitMax: 3 * time.Second, MaxWaiting: 10000, Gate: 50, Nodes: 4,
		BreakAfter: 3, BreakFor: 5 * time.Second,
		MaxResources: 10000, MaxValue: 256 << 10, LocalBytes: 64 << 20,
		Budget: 50 * time.Millisecond,
	}
}

// keepAtLeast is how long a value is kept for the begin of protection when lives
// start there.
const keepAtLeast = 10 * time.Minute

var backendName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// Validate reports every setting that cannot work, with what to do.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !backendName.MatchString(c.Backend) {
		bad("backend: %.60q: use 1 to 40 of a-z, 0-9, - and _", c.Backend)
	}
	if err := c.window().Validate(); err != nil {
		bad("window, slices: %w", err)
	}
	if c.Threshold < 0 || c.Threshold > slice.MaxLimit {
		bad("threshold: %d is outside 0 (protect always) to %d", c.Threshold, int64(slice.MaxLimit))
	}
	if !(c.ExitRatio > 0 && c.ExitRatio <= 1) {
		bad("exit_ratio: %v is outside 0 to 1", c.ExitRatio)
	}
	if c.TTLStart != StartFetch && c.TTLStart != StartActivation {
		bad("ttl_start: %.20q: use %s or %s", c.TTLStart, StartFetch, StartActivation)
	}
	errs = append(errs, c.durations()...)
	errs = append(errs, c.counts()...)
	if _, err := c.secret(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c Config) durations() []error {
	var errs []error
	for _, d := range []struct {
		name     string
		v        time.Duration
		min, max time.Duration
	}{
		{"exit_hold", c.ExitHold, 2 * c.Window, time.Hour},
		{"ttl", c.TTL, time.Millisecond, 24 * time.Hour},
		{"stale_grace", c.StaleGrace, 0, 24 * time.Hour},
		{"fail_ttl", c.FailTTL, 0, time.Minute},
		{"token_timeout", c.TokenTimeout, 10 * time.Millisecond, 5 * time.Minute},
		{"wait_max", c.WaitMax, time.Millisecond, 5 * time.Minute},
		{"break_for", c.BreakFor, 10 * time.Millisecond, 10 * time.Minute},
		{"budget", c.Budget, time.Millisecond, 5 * time.Second},
	} {
		if d.v < d.min || d.v > d.max {
			errs = append(errs, fmt.Errorf("%s: %v is outside %v to %v", d.name, d.v, d.min, d.max))
		}
	}
	return errs
}

func (c Config) counts() []error {
	var errs []error
	for _, n := range []struct {
		name        string
		v, min, max int64
	}{
		{"gate", int64(c.Gate), 1, 100000},
		{"nodes", int64(c.Nodes), 1, int64(max(c.Gate, 1))}, // each node needs a place in the gate
		{"max_waiting", int64(c.MaxWaiting), 1, 1000000},
		{"break_after", int64(c.BreakAfter), 1, 1000},
		{"max_resources", int64(c.MaxResources), 1, 1000000},
		{"max_value", int64(c.MaxValue), 1, 16 << 20},
		{"local_bytes", c.LocalBytes, 1, 16 << 30},
	} {
		if n.v < n.min || n.v > n.max {
			errs = append(errs, fmt.Errorf("%s: %d is outside %d to %d", n.name, n.v, n.min, n.max))
		}
	}
	return errs
}

func (c Config) secret() ([]byte, error) {
	if !c.CachePersonal {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(c.Key)
	if err != nil || len(key) != 32 {
		return nil, errors.New("key: cache_personal needs 32 random bytes in base64; make them with: openssl rand -base64 32")
	}
	return key, nil
}

func (c Config) window() slice.Rule {
	return slice.Rule{Period: c.Window, Slices: c.Slices, Mode: slice.Weighted}
}

// keep is how long a hash in Redis lives after its last change: beyond the use
// of its value, and beyond every fetch that could still be published against it.
func (c Config) keep() time.Duration {
	d := max(c.TTL+c.StaleGrace, 2*c.TokenTimeout) + 10*time.Second
	if c.TTLStart == StartActivation {
		d = max(d, keepAtLeast)
	}
	return d
}
