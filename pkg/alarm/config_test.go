package alarm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSettingsThatCannotBeRight(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	require.NoError(t, config(hook("a", "http://127.0.0.1:9/x"), hook("b", "http://127.0.0.1:9/x")).Validate())
	for want, change := range map[string]func(*WebhookConfig){
		"name":                  func(w *WebhookConfig) { w.Name = "Group 1" },
		"url: this is no":       func(w *WebhookConfig) { w.URL = "::hush" },
		"url: the URL names no": func(w *WebhookConfig) { w.URL = "http:" },
		"not public":            func(w *WebhookConfig) { w.URL = "http://10.0.0.1/hush" },
		"allow":                 func(w *WebhookConfig) { w.Allow = []string{"10.0.0.1/8"} },
		"template":              func(w *WebhookConfig) { w.Template = "slack" },
		"robot \"slack\"":       func(w *WebhookConfig) { w.Robot = "slack" },
		"another robot's":       func(w *WebhookConfig) { w.Template, w.Robot = wecom, dingtalk },
		"min_severity":          func(w *WebhookConfig) { w.MinSeverity = "info" },
		"language":              func(w *WebhookConfig) { w.Language = "de" },
		"timeout":               func(w *WebhookConfig) { w.Timeout = time.Hour },
		"secret: this robot":    func(w *WebhookConfig) { w.Template, w.Secret = wecom, "hush" },
		"prev_secret":           func(w *WebhookConfig) { w.PrevSecret = "hush" },
		"header Host":           func(w *WebhookConfig) { w.Headers = map[string]string{"host": "hush"} },
		"control character":     func(w *WebhookConfig) { w.Headers = map[string]string{"X-A": "hush\n"} },
		"ca_file":               func(w *WebhookConfig) { w.CAFile = "absent.pem" },
	} {
		w := hook("ops", "http://127.0.0.1:9/hush")
		change(&w)
		if want == "url: this is no" {
			want = "url: this is not a URL"
		}
		err := config(w).Validate()
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "alarms.webhooks[0]")
		require.NotContains(t, err.Error(), "hush")
	}
	require.ErrorContains(t, config(hook("a", "http://127.0.0.1/"), hook("a", "http://127.0.0.1/")).Validate(), "another webhook")
	require.ErrorContains(t, config(make([]WebhookConfig, 17)...).Validate(), "at most 16")
	c := DefaultConfig()
	c.RepeatEvery = time.Second
	require.ErrorContains(t, c.Validate(), "repeat_every")
}
