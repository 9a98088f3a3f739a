package proxy

import (
	"fmt"
	"time"

	"tidegate/pkg/run"
	"tidegate/proxy/queues"
)

// Config is the proxy's section of the configuration.
type Config struct {
	HTTP run.HTTPConfig `koanf:"http"`
	// Budget bounds one callback from the first byte of its body to the
	// answer; WeChat hangs up after 5 s.
	Budget time.Duration `koanf:"budget"`
	// Repeats says which actions of a user count as repeats (M9).
	Repeats RepeatsConfig `koanf:"repeats"`
	// Spool keeps callbacks on this node's disk while the queue cannot take
	// them.
	Spool SpoolConfig `koanf:"spool"`
	// Queues watches how much waits where, and for how long (M7).
	Queues queues.Config `koanf:"queues"`
	// Ahead tells followers who have to wait.
	Ahead AheadConfig `koanf:"ahead"`
}

// SpoolConfig says where records wait while the queue is away.
type SpoolConfig struct {
	// Dir is a directory of this process alone on a local disk; empty means no
	// spool: the door answers 503 while the queue is away.
	Dir string `koanf:"dir"`
	// MaxBytes bounds the directory; a full spool refuses with 503.
	MaxBytes int64 `koanf:"max_bytes"`
	// PublishTimeout is how long the queue has for one record before the spool
	// takes it.
	PublishTimeout time.Duration `koanf:"publish_timeout"`
}

// DefaultConfig listens on loopback only.
func DefaultConfig() Config {
	h := run.DefaultHTTPConfig()
	h.Addr = "127.0.0.1:8080"
	return Config{
		HTTP:    h,
		Budget:  3 * time.Second,
		Repeats: defaultRepeats(),
		Spool:   SpoolConfig{MaxBytes: 1 << 30, PublishTimeout: 300 * time.Millisecond},
		Queues:  queues.DefaultConfig(),
		Ahead:   defaultAhead(),
	}
}

// Validate checks the section.
func (c Config) Validate() error {
	if err := c.HTTP.Validate(); err != nil {
		return fmt.Errorf("proxy.http: %w", err)
	}
	if c.Budget <= 0 || c.Budget > 4500*time.Millisecond {
		return fmt.Errorf("proxy.budget %s: use more than 0 and at most 4.5s, since WeChat hangs up after 5s", c.Budget)
	}
	if err := c.Repeats.validate(); err != nil {
		return err
	}
	if err := c.Queues.Validate(); err != nil {
		return fmt.Errorf("proxy.queues.%w", err)
	}
	if err := c.Ahead.validate(c.Queues); err != nil {
		return err
	}
	return c.Spool.validate(c.Budget)
}

// minSpool holds a record of the largest size and its segment.
const minSpool = 4 << 20

func (s SpoolConfig) validate(budget time.Duration) error {
	switch {
	case s.Dir == "":
		return nil
	case s.MaxBytes < minSpool:
		return fmt.Errorf("proxy.spool.max_bytes %d: use at least %d", s.MaxBytes, minSpool)
	case s.PublishTimeout <= 0 || s.PublishTimeout >= budget:
		return fmt.Errorf("proxy.spool.publish_timeout %s: use more than 0 and less than proxy.budget (%s), so that time is left for the disk", s.PublishTimeout, budget)
	}
	return nil
}
