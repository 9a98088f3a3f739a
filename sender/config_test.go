package sender_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/ratelimit"
	"tidegate/sender"
)

func TestDefaultsAreValid(t *testing.T) {
	require.NoError(t, sender.DefaultConfig().Validate())
	require.NoError(t, sender.DefaultLimits().Validate())
}

func TestBadSettingsAreNamed(t *testing.T) {
	for want, change := range map[string]func(*sender.Config){
		"sender.node":                func(c *sender.Config) { c.Node = "" },
		"sender.retry.max_tries":     func(c *sender.Config) { c.Retry.MaxTries = 0 },
		"sender.retry.max_age":       func(c *sender.Config) { c.Retry.MaxAge = 0 },
		"sender.retry: first":        func(c *sender.Config) { c.Retry.Last = time.Microsecond },
		"sender.retry.safe_repeat":   func(c *sender.Config) { c.Retry.SafeRepeat = 10 * time.Minute },
		"sender.retry.reply_repeats": func(c *sender.Config) { c.Retry.ReplyRepeats = -1 },
		"sender.quota_pause":         func(c *sender.Config) { c.QuotaPause = -1 },
		"sender.keep_intents":        func(c *sender.Config) { c.KeepIntents = time.Minute },
		"intake.max_body":            func(c *sender.Config) { c.Intake.MaxBody = 1 },
		"intake.max_in_flight":       func(c *sender.Config) { c.Intake.MaxInFlight = 0 },
		"intake.publish_timeout":     func(c *sender.Config) { c.Intake.PublishTimeout = 0 },
	} {
		c := sender.DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
	l := sender.DefaultLimits()
	l.Subscription = ratelimit.Limit{Concurrency: -1}
	require.ErrorContains(t, l.Validate(), "subscription: concurrency")
}
