package redis_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// However often Redis could not be reached, the first command after its return
// finds it, and until then each says why it failed.
func TestItsReturnIsFoundByTheFirstCommand(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())

	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.PoolSize = []string{addr}, 2
	c, err := redis.Open(cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	for range 10 * cfg.PoolSize {
		err := c.Ping(t.Context())
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorContains(t, err, addr)
	}

	// Callers who leave before their connection failed leave nothing dead behind.
	for range 5 * cfg.PoolSize {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, c.Ping(ctx))
	}
	s, err := redismem.Start(addr)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	for range 2 * cfg.PoolSize {
		require.NoError(t, c.Ping(t.Context()))
	}
}
