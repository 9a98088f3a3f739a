package receipts

import (
	"fmt"
	"time"
)

// BandConfig says when a share of pushes that end badly is told to a person: when
// it leaves what it usually was.
type BandConfig struct {
	// Every is the pause between looks; 0 raises no such alarms.
	Every time.Duration `koanf:"every"`
	// History is how far back the usual is learned from.
	History time.Duration `koanf:"history"`
	// MinHours is how many former hours must have had MinMessages before there is
	// a usual; MinMessages is also the least that an hour is judged by.
	MinHours    int `koanf:"min_hours"`
	MinMessages int `koanf:"min_messages"`
	// Width is how many deviations a share may be above its median, and Least how
	// far at any rate.
	Width float64 `koanf:"width"`
	Least float64 `koanf:"least"`
	// Always is a share that is never usual, whatever the history says.
	Always float64 `koanf:"always"`
	// MaxAlarms bounds the reasons with an alarm of their own.
	MaxAlarms int `koanf:"max_alarms"`
}

func defaultBands() BandConfig {
	return BandConfig{Every: time.Minute, History: 7 * 24 * time.Hour, MinHours: 24, MinMessages: 200, Width: 6, Least: 0.02, Always: 0.5, MaxAlarms: 20}
}

// check gives the field that cannot work and why; "" if all can.
func (c BandConfig) check() (field, why string) {
	switch {
	case c.Every != 0 && (c.Every < 100*time.Millisecond || c.Every > time.Hour):
		return "every", fmt.Sprintf("%s: use 100ms to 1h, or 0s for no such alarms", c.Every)
	case c.History < 24*time.Hour || c.History > 60*24*time.Hour:
		return "history", fmt.Sprintf("%s: use 24h to 1440h", c.History)
	case c.MinHours < 3 || time.Duration(c.MinHours)*time.Hour > c.History:
		return "min_hours", fmt.Sprintf("%d: use 3 or more, and no more hours than history has", c.MinHours)
	case c.MinMessages < 20 || c.MinMessages > 1_000_000:
		return "min_messages", fmt.Sprintf("%d: use 20 to 1000000", c.MinMessages)
	case c.Width < 1 || c.Width > 100:
		return "width", fmt.Sprintf("%g: use 1 to 100", c.Width)
	case c.Least <= 0 || c.Least >= 1:
		return "least", fmt.Sprintf("%g: use more than 0 and less than 1, for example 0.02", c.Least)
	case c.Always <= 0 || c.Always > 1:
		return "always", fmt.Sprintf("%g: use more than 0 and at most 1", c.Always)
	case c.MaxAlarms < 1 || c.MaxAlarms > 1000:
		return "max_alarms", fmt.Sprintf("%d: use 1 to 1000", c.MaxAlarms)
	}
	return "", ""
}
