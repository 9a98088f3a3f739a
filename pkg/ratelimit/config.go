package ratelimit

import (
	"errors"
	"fmt"
	"time"
)

// Config says how caps are shared. It must be the same for all nodes.
type Config struct {
	// Shared caps hold over all nodes by means of Redis; others in each process.
	Shared bool `koanf:"shared"`
	// MaxNodes is the largest number of processes that ever share a cap. While
	// Redis is away each takes so much of it: 1/MaxNodes.
	MaxNodes int `koanf:"max_nodes"`
	// Timeout bounds one question to Redis.
	Timeout time.Duration `koanf:"timeout"`
	// PlaceLife is how long the places of a node that died stay taken.
	PlaceLife time.Duration `koanf:"place_life"`
}

// DefaultConfig is for up to 8 processes of a role.
func DefaultConfig() Config {
	return Config{Shared: true, MaxNodes: 8, Timeout: 100 * time.Millisecond, PlaceLife: 2 * time.Second}
}

// Validate reports every value out of range.
func (c Config) Validate() error {
	var errs []error
	if c.MaxNodes < 1 || c.MaxNodes > 1000 {
		errs = append(errs, fmt.Errorf("permits.max_nodes: %d is outside 1 to 1000; give the largest number of processes that one role will have", c.MaxNodes))
	}
	if c.Timeout < 5*time.Millisecond || c.Timeout > 150*time.Millisecond {
		errs = append(errs, fmt.Errorf("permits.timeout: %v is outside 5ms to 150ms; nodes must notice soon that Redis is back", c.Timeout))
	}
	if c.PlaceLife < 500*time.Millisecond || c.PlaceLife > time.Minute {
		errs = append(errs, fmt.Errorf("permits.place_life: %v is outside 500ms to 1m", c.PlaceLife))
	}
	return errors.Join(errs...)
}

// The times that the promise rests on. They are no settings, since all nodes must
// agree on them.
const (
	// horizon is how far ahead permits are given out: a node that is late by less
	// loses nothing.
	horizon = 200 * time.Millisecond
	// beat is the longest time between two questions of a node.
	beat = 500 * time.Millisecond
	// gap without any question means that nodes may have begun to live on shares.
	// It is longer than a beat and a late one, and shorter than patience.
	gap = 1500 * time.Millisecond
	// patience is how long Redis must have been away before a node lives on its
	// share. Until then all permits given out before have lapsed: it is longer than
	// gap + Timeout and than horizon + the life of a permit.
	patience = 1800 * time.Millisecond
	// proof is how long a question without an answer shows that Redis is away,
	// from when it left. It is longer than Timeout + retry.
	proof = 350 * time.Millisecond
	retry = 100 * time.Millisecond
	// settle is the rest before a new beginning: longer than proof, and than
	// horizon + the life of a permit.
	settle = 400 * time.Millisecond
	// margin is taken off a permit's life for clocks that do not run alike.
	margin = time.Millisecond
	// keep is the life of a cap's keys. When they end the cap begins empty, which
	// is safe at any time.
	keep = 10 * time.Minute
	// most is the number of permits given out at once.
	most = 4096
)

// Pauses between the questions of one node.
const (
	refill  = 25 * time.Millisecond // while it has some permits and needs more
	hurry   = 2 * time.Millisecond  // while it has none
	giveUp  = 50 * time.Millisecond // until places that it does not need go back
	askSoon = 5 * time.Millisecond  // the least wait that an answer may ask for
)
