package webhook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/receipts/webhook"
)

func fieldsOf(m map[string]any) string { return fmt.Sprint(m) }

func TestSettingsThatCannotWork(t *testing.T) {
	good := func() webhook.Config {
		c := webhook.DefaultConfig()
		c.Apps = []webhook.AppConfig{{Name: "card", URL: "https://card.example.com/hooks", Secret: secret, CallbackHosts: []string{"hooks.example.com", "hooks.example.com:8443"}}}
		return c
	}
	require.NoError(t, good().Validate())
	require.NoError(t, webhook.DefaultConfig().Validate())
	for field, change := range map[string]func(*webhook.Config){
		"timeout":                func(c *webhook.Config) { c.Timeout = time.Hour },
		"concurrency":            func(c *webhook.Config) { c.Concurrency = 0 },
		"retry_first":            func(c *webhook.Config) { c.RetryFirst = 2 * time.Hour },
		"give_up_after":          func(c *webhook.Config) { c.GiveUpAfter = 0 },
		"disable_after":          func(c *webhook.Config) { c.DisableAfter = 0 },
		"allow":                  func(c *webhook.Config) { c.Allow = []string{"10.0.0.1/8"} },
		"apps[0].name":           func(c *webhook.Config) { c.Apps[0].Name = "Card App" },
		"apps[1].name":           func(c *webhook.Config) { c.Apps = append(c.Apps, c.Apps[0]) },
		"apps[0].url":            func(c *webhook.Config) { c.Apps[0].URL = "http://127.0.0.1/" },
		"apps[0].secret":         func(c *webhook.Config) { c.Apps[0].Secret = "whsec_c2hvcnQ=" },
		"apps[0].prev_secret":    func(c *webhook.Config) { c.Apps[0].PrevSecret = "geheim" },
		"apps[0].callback_hosts": func(c *webhook.Config) { c.Apps[0].CallbackHosts = []string{"https://hooks.example.com/"} },
		"apps[0].events":         func(c *webhook.Config) { c.Apps[0].Events = []string{"answered"} },
	} {
		c := good()
		change(&c)
		err := c.Validate()
		require.Error(t, err, field)
		require.Equal(t, "receipts.webhooks."+field, fault.FieldOf(err))
		require.False(t, strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "c2hvcnQ"), "no secret in an error")
	}
	c := good()
	c.Apps[0].URL, c.Apps[0].CallbackHosts = "", nil
	require.Error(t, c.Validate())
	require.NoError(t, good().CheckCallback("card", "https://HOOKS.example.com:443/x"))
	require.NoError(t, good().CheckCallback("card", "https://hooks.example.com:8443/x"))
	require.Error(t, good().CheckCallback("card", "https://hooks.example.com.evil.net/x"))
	require.Error(t, good().CheckCallback("card", "https://hooks.example.com:9000/x"))
}
