package ratelimit

import (
	"errors"
	"fmt"
	"time"

	"tidegate/pkg/slice"
)

// SLAConfig is what callers of an API are held to (paper 004): developers, their
// applications, and the users of each application. A role without rules has no
// limit.
type SLAConfig struct {
	Developer []slice.Rule `koanf:"developer"` // all apps of one developer together
	App       []slice.Rule `koanf:"app"`       // each app
	User      []slice.Rule `koanf:"user"`      // each user of each app
	// Apps gives some apps rules of their own instead of App and User.
	Apps []SLAApp `koanf:"apps"`
	// Status is what a refused call is answered with: 403, as the paper has it, or 429.
	Status int `koanf:"status"`
	// WhenAway says what holds while Redis does not answer: share (each node admits
	// its share of every limit), open or closed.
	WhenAway string `koanf:"when_away"`
	// MaxNodes is the most nodes that will ever run: a share is a limit divided by it.
	MaxNodes int `koanf:"max_nodes"`
	// Shadow counts and tells what would be refused, and refuses nothing.
	Shadow bool `koanf:"shadow"`
}

// SLAApp is one app's own rules; a role that is left out keeps the rules of all.
type SLAApp struct {
	Name string       `koanf:"name"`
	App  []slice.Rule `koanf:"app"`
	User []slice.Rule `koanf:"user"`
}

// What SLAConfig.WhenAway may say.
const (
	AwayShare  = "share"
	AwayOpen   = "open"
	AwayClosed = "closed"
)

// DefaultSLA limits nobody, and answers as the paper does once there are rules.
func DefaultSLA() SLAConfig { return SLAConfig{Status: 403, WhenAway: AwayShare, MaxNodes: 4} }

// defaultSlices makes strict use at least ten elevenths of a limit.
const defaultSlices = 10

// filled gives a rule the mode and slices that were left out.
func filled(r slice.Rule) slice.Rule {
	if r.Mode == "" {
		r.Mode = slice.Strict
	}
	if r.Slices == 0 {
		r.Slices = defaultSlices
	}
	return r
}

// Validate names the first setting that cannot work.
func (c SLAConfig) Validate() error {
	switch {
	case c.Status != 403 && c.Status != 429:
		return fmt.Errorf("status %d: use 403 or 429", c.Status)
	case c.WhenAway != AwayShare && c.WhenAway != AwayOpen && c.WhenAway != AwayClosed:
		return fmt.Errorf("when_away %.20q: use %s, %s or %s", c.WhenAway, AwayShare, AwayOpen, AwayClosed)
	case c.MaxNodes < 1 || c.MaxNodes > 1000:
		return fmt.Errorf("max_nodes %d: use 1 to 1000", c.MaxNodes)
	}
	errs := []error{rules("developer", c.Developer), rules("app", c.App), rules("user", c.User)}
	for i, a := range c.Apps {
		at := fmt.Sprintf("apps[%d]", i)
		if a.Name == "" {
			errs = append(errs, fmt.Errorf("%s: name the app", at))
		}
		errs = append(errs, rules(at+".app", a.App), rules(at+".user", a.User))
	}
	return errors.Join(errs...)
}

// maxRules keeps the three roles of a call within what one script takes.
const maxRules = slice.MaxLevels / 3

func rules(at string, list []slice.Rule) error {
	if len(list) > maxRules {
		return fmt.Errorf("%s: %d rules: at most %d are possible", at, len(list), maxRules)
	}
	seen := map[time.Duration]bool{}
	for i, r := range list {
		if err := filled(r).Validate(); err != nil {
			return fmt.Errorf("%s[%d]: %w", at, i, err)
		}
		if seen[r.Period] {
			return fmt.Errorf("%s[%d]: there is a rule for %s already", at, i, r.Period)
		}
		seen[r.Period] = true
	}
	return nil
}
