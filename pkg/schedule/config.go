package schedule

import (
	"fmt"
	"time"
)

// Config is the section of the configuration.
type Config struct {
	// Lease is how long a leader that died keeps the others waiting.
	Lease time.Duration `koanf:"lease"`
	// History is how long ended runs are kept, Keep how many of each job at most.
	History time.Duration `koanf:"history"`
	Keep    int           `koanf:"keep"`
	// Overdue is how late a success may be before a person is told.
	Overdue time.Duration `koanf:"overdue"`
}

// DefaultConfig replaces a dead leader well within the minute that a slot may
// be late.
func DefaultConfig() Config {
	return Config{Lease: 15 * time.Second, History: 90 * 24 * time.Hour, Keep: 1000, Overdue: time.Hour}
}

// Validate checks the section.
func (c Config) Validate() error {
	switch {
	case c.Lease < time.Second || c.Lease > 30*time.Second:
		return fmt.Errorf("jobs.lease %s: use 1s to 30s; a slot waits so long for a leader that died", c.Lease)
	case c.History < 24*time.Hour || c.History > 10*366*24*time.Hour:
		return fmt.Errorf("jobs.history %s: use 24h to 87840h", c.History)
	case c.Keep < 10 || c.Keep > 100_000:
		return fmt.Errorf("jobs.keep %d: use 10 to 100000", c.Keep)
	case c.Overdue < 2*time.Minute || c.Overdue > 30*24*time.Hour:
		return fmt.Errorf("jobs.overdue %s: use 2m to 720h; a slot may be a minute late without being caught up", c.Overdue)
	}
	return nil
}
