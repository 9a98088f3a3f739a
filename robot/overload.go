package robot

import (
	"fmt"
	"time"

	"tidegate/robot/engine"
)

// OverloadConfig says how long callbacks wait for their turn when more come than
// the account or a back end takes, by level (see package engine). A callback that
// has waited for longer, or would have to, is refused: its follower gets the busy
// text at once, and the turn goes to somebody who still waits for an answer.
//
// 0 refuses none of a level: they wait in the queue for as long as it takes.
type OverloadConfig struct {
	Vital     time.Duration `koanf:"vital"`
	Query     time.Duration `koanf:"query"`
	Event     time.Duration `koanf:"event"`
	Marketing time.Duration `koanf:"marketing"`
	// Places is how many callbacks of an account may wait in this process, beyond
	// those in work. When half of them are taken, for longer than a moment,
	// marketing is refused, at three quarters events, at nine tenths queries: a
	// vital callback always finds somebody who takes it out of the queue.
	Places int `koanf:"places"`
	// AlarmAfter is how long an account has to refuse callbacks before it is told.
	AlarmAfter time.Duration `koanf:"alarm_after"`
}

// DefaultOverloadConfig suits people who wait for an answer: who has waited for
// ten seconds has pressed again or left.
func DefaultOverloadConfig() OverloadConfig {
	return OverloadConfig{
		Vital: time.Minute, Query: 10 * time.Second, Event: 5 * time.Second, Marketing: 2 * time.Second,
		Places: 1000, AlarmAfter: 30 * time.Second,
	}
}

// patience is how long a callback of each level waits.
type patience [engine.Levels]time.Duration

func (c OverloadConfig) patience() patience {
	return patience{engine.Vital: c.Vital, engine.Query: c.Query, engine.Event: c.Event, engine.Marketing: c.Marketing}
}

// validate checks the section. A level that waits for longer than a more urgent
// one would turn the order of refusals round.
func (c OverloadConfig) validate(bad func(format string, args ...any)) {
	var above time.Duration
	for i, d := range c.patience() {
		level := engine.Level(i)
		if d != 0 && (d < 100*time.Millisecond || d > 10*time.Minute) {
			bad("overload.%s %s: use 100ms to 10m, or 0 to refuse none", level, d)
		}
		if i > 0 && above != 0 && (d == 0 || d > above) {
			bad("overload.%s %s: it must not wait for longer than %s, %s: then %s would be refused first", level, whole(d), engine.Level(i-1), above, engine.Level(i-1))
		}
		above = d
	}
	if c.Places < 0 || c.Places > 8192 {
		bad("overload.places %d: use 0 to 8192", c.Places)
	}
	if c.AlarmAfter < time.Second || c.AlarmAfter > time.Hour {
		bad("overload.alarm_after %s: use 1s to 1h", c.AlarmAfter)
	}
}

func whole(d time.Duration) string {
	if d == 0 {
		return "0 (for ever)"
	}
	return fmt.Sprint(d)
}
