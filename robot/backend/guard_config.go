package backend

import (
	"strings"
	"time"

	"tidegate/pkg/guard"
)

// GuardConfig puts a guard (pkg/guard) in front of a back end: its calls pass a
// gate over all robots, and answers that a rule calls shared are fetched once for
// everybody while demand is high. What is left out or zero takes its default. The
// settings of one back end must be the same on all robots.
type GuardConfig struct {
	Enabled bool `koanf:"enabled"`
	// Threshold is the demand of a Window, over all robots, above which shared
	// answers are shared; -1 shares always.
	Threshold int64         `koanf:"threshold"`
	Window    time.Duration `koanf:"window"`
	// TTL is how old a shared answer may be; StaleGrace how much older when the
	// back end fails (0: never).
	TTL        time.Duration `koanf:"ttl"`
	StaleGrace time.Duration `koanf:"stale_grace"`
	// FailTTL is how long a failed call keeps others from making the same one.
	FailTTL time.Duration `koanf:"fail_ttl"`
	// FetchTimeout bounds a shared call with its retries, and the wait for a robot
	// that died with one.
	FetchTimeout time.Duration `koanf:"fetch_timeout"`
	// WaitMax bounds the wait for a place in the gate or for somebody else's call.
	WaitMax time.Duration `koanf:"wait_max"`
	// Gate is how many calls may be under way over all robots, Nodes the largest
	// number of robots.
	Gate  int `koanf:"gate"`
	Nodes int `koanf:"nodes"`
	// MaxResources bounds the answers that are kept, MaxValue one of them in bytes.
	MaxResources int `koanf:"max_resources"`
	MaxValue     int `koanf:"max_value"`
	// Key encrypts personal answers, which are kept only where a rule says so: 32
	// bytes in base64, the same on all robots. Without it no rule may.
	Key string `koanf:"key" secret:"true"`
}

// defaultFetchTimeout and defaultWaitMax suit who has answered WeChat already.
const (
	defaultFetchTimeout = 10 * time.Second
	defaultWaitMax      = 10 * time.Second
)

// guard is the guard's own configuration.
func (c Config) guard() guard.Config {
	g, own := guard.DefaultConfig(), c.Guard
	g.Backend, g.TokenTimeout, g.WaitMax = c.Name, defaultFetchTimeout, defaultWaitMax
	set(&g.Threshold, own.Threshold)
	if own.Threshold == -1 {
		g.Threshold = 0
	}
	set(&g.Window, own.Window)
	set(&g.TTL, own.TTL)
	set(&g.StaleGrace, own.StaleGrace)
	set(&g.FailTTL, own.FailTTL)
	set(&g.TokenTimeout, own.FetchTimeout)
	set(&g.WaitMax, own.WaitMax)
	set(&g.Gate, own.Gate)
	set(&g.Nodes, own.Nodes)
	set(&g.MaxResources, own.MaxResources)
	set(&g.MaxValue, own.MaxValue)
	g.ExitHold = max(g.ExitHold, 2*g.Window)
	g.CachePersonal, g.Key = own.Key != "", own.Key
	return g
}

func set[T comparable](field *T, value T) {
	var zero T
	if value != zero {
		*field = value
	}
}

func (c Config) validateGuard() error {
	switch {
	case !c.Guard.Enabled && c.Guard != (GuardConfig{}):
		return invalid("guard", "set enabled: true, or remove the other settings")
	case !c.Guard.Enabled:
		return nil
	case c.Type == TypeWeChat:
		return invalid("guard", "a bot is given callbacks, and none of its answers is anybody else's: remove guard")
	case c.Guard.Threshold < -1:
		return invalid("guard.threshold", "%d: use a number of calls in a window, or -1 to share always", c.Guard.Threshold)
	}
	if err := c.guard().Validate(); err != nil {
		return invalid("guard", "%s", strings.ReplaceAll(err.Error(), "token_timeout:", "fetch_timeout:")) // our name for it
	}
	return nil
}
