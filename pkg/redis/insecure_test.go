package redis_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/redis"
)

// S82: servers on other machines want encryption and a login.
func TestS82PlainServersElsewhereAreRefused(t *testing.T) {
	safe := func() redis.Config {
		c := redis.DefaultConfig()
		c.Addrs = []string{"redis-1.internal:6379"}
		c.TLS.Enabled, c.Password = true, "pw"
		return c
	}
	require.NoError(t, safe().Validate())
	for name, spoil := range map[string]func(*redis.Config){
		"without encryption": func(c *redis.Config) { c.TLS = redis.TLS{} },
		"without a login":    func(c *redis.Config) { c.Password = "" },
	} {
		t.Run(name, func(t *testing.T) {
			c := safe()
			spoil(&c)
			err := c.Validate()
			require.ErrorContains(t, err, name)
			require.ErrorContains(t, err, "redis.allow_insecure")
			c.AllowInsecure = true
			require.NoError(t, c.Validate())
		})
	}
	local := redis.DefaultConfig()
	local.Addrs = []string{"[::1]:6379"}
	require.NoError(t, local.Validate())
}
