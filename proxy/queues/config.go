package queues

import (
	"fmt"
	"time"
)

// Config is the section proxy.queues.
type Config struct {
	// Poll is how often the queues are measured; 0 switches the watch off.
	Poll time.Duration `koanf:"poll"`
	// Window is the time over which a partition is judged.
	Window time.Duration `koanf:"window"`
	// DepthMode is "corrected", or "paper" for the letter of M7: above max_depth
	// the robot counts as failed, whatever the others do.
	DepthMode string `koanf:"depth_mode"`
	// Limits hold for all queues but those of bulk pushes.
	Limits `koanf:",squash"`
	// Bulk holds for the queues of bulk pushes, where millions wait by intent.
	Bulk Limits `koanf:"bulk"`
}

// Limits are those of one partition.
type Limits struct {
	// WarnDepth is the number of waiting records above which an alarm is raised.
	WarnDepth int64 `koanf:"warn_depth"`
	// MaxDepth is M7's maximum: above it the partition is faulty, slow or part
	// of an overload.
	MaxDepth int64 `koanf:"max_depth"`
	// WarnAge is the age of the oldest waiting record above which an alarm is
	// raised; 0 for none.
	WarnAge time.Duration `koanf:"warn_age"`
}

// The depth modes.
const (
	Corrected = "corrected"
	Paper     = "paper"
)

// DefaultConfig fits 10,000 callbacks per second on 12 partitions: warn_depth is
// six seconds of that, and nobody should wait for a minute.
func DefaultConfig() Config {
	return Config{
		Poll: 2 * time.Second, Window: 30 * time.Second, DepthMode: Corrected,
		Limits: Limits{WarnDepth: 5_000, MaxDepth: 20_000, WarnAge: time.Minute},
		Bulk:   Limits{WarnDepth: 4_000_000, MaxDepth: 5_000_000, WarnAge: 6 * time.Hour},
	}
}

// Validate checks the section and names the key that is wrong.
func (c Config) Validate() error {
	switch {
	case c.Poll == 0:
		return nil
	case c.Poll < 100*time.Millisecond || c.Poll > time.Minute:
		return fmt.Errorf("poll %s: use 100ms to 1m, or 0 to switch the watch off", c.Poll)
	case c.Window < 5*c.Poll || c.Window > time.Hour:
		return fmt.Errorf("window %s: use at least five times poll (%s), at most 1h", c.Window, c.Poll)
	case c.DepthMode != Corrected && c.DepthMode != Paper:
		return fmt.Errorf("depth_mode %q: use corrected or paper", c.DepthMode)
	}
	if err := c.Limits.validate(); err != nil {
		return err
	}
	if err := c.Bulk.validate(); err != nil {
		return fmt.Errorf("bulk.%w", err)
	}
	return nil
}

func (l Limits) validate() error {
	switch {
	case l.WarnDepth < 1:
		return fmt.Errorf("warn_depth %d: use at least 1", l.WarnDepth)
	case l.MaxDepth < l.WarnDepth:
		return fmt.Errorf("max_depth %d: use at least warn_depth (%d)", l.MaxDepth, l.WarnDepth)
	case l.WarnAge < 0:
		return fmt.Errorf("warn_age %s: use a positive duration, or 0 for no alarm", l.WarnAge)
	}
	return nil
}
