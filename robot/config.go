package robot

import (
	"errors"
	"fmt"
	"time"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wire"
	"tidegate/robot/backend"
	"tidegate/robot/binding"
	"tidegate/robot/dialogue"
	"tidegate/robot/history"
	"tidegate/robot/plugin"
)

// Config is the robot's section of the configuration.
type Config struct {
	// Group begins the names of the consumer groups, one for each account:
	// <group>.<account>. An account that joins or leaves disturbs no other.
	Group string `koanf:"group"`
	// Workers is how many callbacks of one account this process works at once;
	// those that wait for their turn come on top (Overload.Places). An account
	// whose concurrency is higher gets as many as it needs.
	Workers int `koanf:"workers"`
	// QueueHigh and QueueLow are the marks, in waiting records of a partition,
	// at which fetching pauses and goes on.
	QueueHigh int `koanf:"queue_high"`
	QueueLow  int `koanf:"queue_low"`
	// MaxAge bounds the work on one callback, from its permit on; then the
	// follower gets the fallback text.
	MaxAge time.Duration `koanf:"max_age"`
	// PublishTimeout bounds one try to publish a letter.
	PublishTimeout time.Duration `koanf:"publish_timeout"`
	// SessionTimeout is how long Kafka waits for a robot that has died without a
	// word before others get its partitions. Brokers refuse less than their
	// group.min.session.timeout.ms, by default 6 s.
	SessionTimeout time.Duration `koanf:"session_timeout"`
	// StalledAfter is how long the work on a callback may show no sign of life,
	// beyond the deadlines of back ends and the wait for a permit, before the
	// robot counts as faulty and leaves its partitions to the others.
	StalledAfter time.Duration `koanf:"stalled_after"`
	// GiveUpAfter is how long the robot then waits for that work to return before
	// its process ends, so that its supervisor starts a new one.
	GiveUpAfter time.Duration `koanf:"give_up_after"`
	// Recent is how many finished callbacks per partition are remembered to
	// recognise redeliveries.
	Recent int `koanf:"recent"`
	// Overload says what is refused when more comes than can be worked.
	Overload OverloadConfig `koanf:"overload"`
	// Backends are the business systems that rules may call.
	Backends []backend.Config `koanf:"backends"`
	// Engines are the external engines that rules may ask.
	Engines []plugin.Config `koanf:"engines"`
	// Dialogue is about what followers write in dialogues.
	Dialogue dialogue.Config `koanf:"dialogue"`
	// Binding says who knows which business user a follower is.
	Binding binding.Config `koanf:"binding"`
	// History is about what followers did last.
	History history.Config `koanf:"history"`
	// PublicAPI opens the robot's share of the public API (section api): bindings
	// and the erasure of a follower's data. It takes the section database, where the
	// keys are.
	PublicAPI bool `koanf:"public_api"`
}

// DefaultConfig has no back end.
func DefaultConfig() Config {
	return Config{
		Group: "tidegate-robot", Workers: 64, QueueHigh: 1000, QueueLow: 200,
		MaxAge: time.Minute, PublishTimeout: 5 * time.Second, Recent: 4096,
		SessionTimeout: 6 * time.Second, StalledAfter: 30 * time.Second, GiveUpAfter: 30 * time.Second,
		Overload: DefaultOverloadConfig(), Binding: binding.DefaultConfig(), History: history.DefaultConfig(),
	}
}

// Validate checks the section and names the key of everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("robot."+format, args...)) }
	if c.Group == "" || len(c.Group) > 100 {
		bad("group %q: give the consumer group a name of up to 100 characters", c.Group)
	}
	if c.Workers < 1 || c.Workers > 4096 {
		bad("workers %d: use 1 to 4096", c.Workers)
	}
	if c.QueueHigh < 2 || c.QueueHigh > 100_000 || c.QueueLow < 1 || c.QueueLow >= c.QueueHigh {
		bad("queue_high %d, queue_low %d: use 2 to 100000 for queue_high and less than it, but at least 1, for queue_low", c.QueueHigh, c.QueueLow)
	}
	if c.MaxAge < time.Second || c.MaxAge > 10*time.Minute {
		bad("max_age %s: use 1s to 10m", c.MaxAge)
	}
	if c.PublishTimeout < 100*time.Millisecond || c.PublishTimeout > time.Minute {
		bad("publish_timeout %s: use 100ms to 1m", c.PublishTimeout)
	}
	if c.SessionTimeout < 2*time.Second || c.SessionTimeout > 5*time.Minute {
		bad("session_timeout %s: use 2s to 5m", c.SessionTimeout)
	}
	if c.StalledAfter < time.Second || c.StalledAfter > 10*time.Minute || c.GiveUpAfter < time.Second || c.GiveUpAfter > 10*time.Minute {
		bad("stalled_after %s, give_up_after %s: use 1s to 10m for each", c.StalledAfter, c.GiveUpAfter)
	}
	if c.Recent < 1 || c.Recent > 1_000_000 {
		bad("recent %d: use 1 to 1000000", c.Recent)
	}
	c.Overload.validate(bad)
	errs = append(errs, c.Dialogue.Validate())
	asked := map[string]bool{}
	for i, e := range c.Engines {
		if err := e.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("robot.engines, entry %d (%s): %w", i+1, e.Name, err))
		} else if asked[e.Name] {
			bad("engines, entry %d: the name %q is there twice: choose another", i+1, e.Name)
		}
		asked[e.Name] = true
	}
	seen := map[string]bool{}
	for i, b := range c.Backends {
		if err := b.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("robot.backends, entry %d (%s): %w", i+1, b.Name, err))
		} else if seen[b.Name] {
			bad("backends, entry %d: the name %q is there twice: choose another", i+1, b.Name)
		}
		seen[b.Name] = true
	}
	if b := c.Binding; b.Backend != "" && !seen[b.Backend] {
		bad("binding.backend %q: it is none of robot.backends: add it there", b.Backend)
	} else if err := b.Validate(); err != nil {
		bad("binding: %w", err)
	}
	if err := c.History.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// BackendNames lists the configured back ends that rules can call, for
// engine.Known.
func (c Config) BackendNames() []string { return c.named(false) }

// BotNames lists the configured bots, for engine.Known.
func (c Config) BotNames() []string { return c.named(true) }

func (c Config) named(bots bool) []string {
	names := make([]string, 0, len(c.Backends))
	for _, b := range c.Backends {
		if bots == (b.Type == backend.TypeWeChat) {
			names = append(names, b.Name)
		}
	}
	return names
}

// Limits cap what an account's callbacks may cost, on this node.
type Limits struct {
	// Rate is callbacks a second, Burst how many may go at once after a pause,
	// Concurrency how many are worked at the same time; 0 is no such cap.
	Rate        float64 `koanf:"rate"`
	Burst       int     `koanf:"burst"`
	Concurrency int     `koanf:"concurrency"`
}

func (l Limits) limit() ratelimit.Limit {
	return ratelimit.Limit{Rate: l.Rate, Burst: l.Burst, Concurrency: l.Concurrency}
}

// Validate checks the caps.
func (l Limits) Validate() error { return l.limit().Validate() }

// Account is what the robot needs to know of one account.
type Account struct {
	Name   string
	Limits Limits
}

func validAccounts(accounts []Account) error {
	seen := map[string]bool{}
	for _, a := range accounts {
		if !wire.ValidAccount(a.Name) {
			return fmt.Errorf("account name %q: use 1 to 40 of a-z, 0-9 and -, beginning with a letter or digit", a.Name)
		}
		if seen[a.Name] {
			return fmt.Errorf("account %s is configured twice", a.Name)
		}
		seen[a.Name] = true
		if err := a.Limits.Validate(); err != nil {
			return fmt.Errorf("account %s: robot: %w", a.Name, err)
		}
	}
	return nil
}
