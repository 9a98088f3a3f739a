package hold

import (
	"fmt"
	"time"
)

// Config is the section of the configuration.
type Config struct {
	// After is the longest wait that a letter spends in the queue; one that has
	// to wait longer becomes a row.
	After time.Duration `koanf:"after"`
	// MaxRows is about how many letters may be held; further ones wait in the
	// queue.
	MaxRows int64 `koanf:"max_rows"`
	// ReleaseFrom and ReleaseTo are how many letters a second go back to the
	// queue for one account, when many are due at once: the rate begins at
	// ReleaseFrom and reaches ReleaseTo in a straight line over ReleaseOver.
	ReleaseFrom float64       `koanf:"release_from"`
	ReleaseTo   float64       `koanf:"release_to"`
	ReleaseOver time.Duration `koanf:"release_over"`
}

// DefaultConfig suits production: what waited for the end of the night does not
// arrive in one wave at the apps behind the messages' links.
func DefaultConfig() Config {
	return Config{After: 30 * time.Second, MaxRows: 1_000_000, ReleaseFrom: 50, ReleaseTo: 500, ReleaseOver: time.Minute}
}

// Validate names the first setting that cannot work.
func (c Config) Validate() error {
	switch {
	case c.After < time.Second || c.After > time.Hour:
		return fmt.Errorf("sender.hold.after %s: use 1s to 1h", c.After)
	case c.MaxRows < 0 || c.MaxRows > 1e9:
		return fmt.Errorf("sender.hold.max_rows %d: use 0 (nothing is held, letters wait in the queue) to 1000000000", c.MaxRows)
	case c.ReleaseFrom < 0.1 || c.ReleaseTo > 1e5 || c.ReleaseTo < c.ReleaseFrom:
		return fmt.Errorf("sender.hold: release_from %g and release_to %g a second: use 0.1 to 100000, and release_to not below release_from", c.ReleaseFrom, c.ReleaseTo)
	case c.ReleaseOver < 0 || c.ReleaseOver > 24*time.Hour:
		return fmt.Errorf("sender.hold.release_over %s: use 0s to 24h", c.ReleaseOver)
	}
	return nil
}
