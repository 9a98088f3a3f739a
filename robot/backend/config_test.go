package backend_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/robot/backend"
)

func TestValidateNamesTheField(t *testing.T) {
	require.NoError(t, config("http://core:80").Validate())
	for field, change := range map[string]func(*backend.Config){
		"base_url":       func(c *backend.Config) { c.BaseURL = "" },
		"base_url ":      func(c *backend.Config) { c.BaseURL = "ftp://x" },
		"base_url  ":     func(c *backend.Config) { c.BaseURL = "http://u:p@x" },
		"base_url   ":    func(c *backend.Config) { c.BaseURL = "http://x?y" },
		"headers":        func(c *backend.Config) { c.Headers = map[string]string{"X": "a\r\nb"} },
		"headers ":       func(c *backend.Config) { c.Headers = map[string]string{"Idempotency-Key": "a"} },
		"headers  ":      func(c *backend.Config) { c.Headers = map[string]string{"authorization": "a"} },
		"authorization":  func(c *backend.Config) { c.Authorization = "Bearer x\n" },
		"ca_file":        func(c *backend.Config) { c.CAFile = "absent.pem" },
		"timeout":        func(c *backend.Config) { c.Timeout = time.Hour },
		"attempts":       func(c *backend.Config) { c.Attempts = -1 },
		"name":           func(c *backend.Config) { c.Name = "Core Bank" },
		"backoff_min":    func(c *backend.Config) { c.BackoffMin = time.Minute },
		"max_response":   func(c *backend.Config) { c.MaxResponse = 1 << 30 },
		"rate":           func(c *backend.Config) { c.Rate = -1 },
		"burst":          func(c *backend.Config) { c.Burst = -1 },
		"concurrency":    func(c *backend.Config) { c.Concurrency = -1 },
		"retry_statuses": func(c *backend.Config) { c.RetryStatuses = []int{404} },
	} {
		c := config("http://core")
		change(&c)
		err := c.Validate()
		require.Error(t, err, field)
		require.Equal(t, strings.TrimSpace(field), fault.FieldOf(err), "%v", err)
		require.NotContains(t, err.Error(), "Bearer")
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",null,true]}`, `1e999`, `-0`, `[[[[`, "\xEF\xBB\xBF", `{"a":1}{`, `123456789012345678901234567890`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		v, err := backend.Decode([]byte(body))
		if err != nil {
			return
		}
		_, err = json.Marshal(v)
		require.NoError(t, err, "what was decoded is JSON again")
	})
}
