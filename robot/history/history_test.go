package history_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/robot/engine"
	"tidegate/robot/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="

func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout, cfg.Prefix = []string{addr}, time.Second, fmt.Sprintf("test:history:%d", time.Now().UnixNano())
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func book(t *testing.T, c *redis.Client) *history.Book {
	t.Helper()
	cfg := history.DefaultConfig()
	cfg.Keep, cfg.Key = 3, secret
	b, err := history.New(cfg, c, prometheus.NewRegistry())
	require.NoError(t, err)
	return b
}

func server(t *testing.T) string {
	if addr := os.Getenv("TIDEGATE_TEST_REDIS"); addr != "" {
		return addr
	}
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s.Addr()
}

func did(n int) engine.Action {
	return engine.Action{ID: fmt.Sprint(n), At: int64(n), What: fmt.Sprintf("bill %d", n), Rule: "bill", State: "answered", Said: "77 CNY"}
}

func last(t *testing.T, b *history.Book, openid string) []engine.Action {
	t.Helper()
	all, err := b.Last(t.Context(), "card", openid)
	require.NoError(t, err)
	return all
}

func TestTheNewestFewAreRemembered(t *testing.T) {
	c := client(t, server(t))
	b := book(t, c)
	require.Empty(t, last(t, b, "o1"))
	for n := range 5 {
		b.Add(t.Context(), "card", "o1", did(n))
	}
	require.Equal(t, []engine.Action{did(4), did(3), did(2)}, last(t, b, "o1"))
	require.Empty(t, last(t, b, "o2"))
	b.Add(t.Context(), "card", "o1", did(4))
	require.Equal(t, []engine.Action{did(4), did(3)}, last(t, b, "o1"), "worked twice is there once")
	left, _, err := c.TTL(t.Context(), redis.Tag("card.o1", "history"))
	require.NoError(t, err)
	require.InDelta(t, 7*24*time.Hour, left, float64(time.Minute))

	long := did(9)
	long.What, long.Said = strings.Repeat("票", 100), strings.Repeat("x", 1000)
	b.Add(t.Context(), "card", "o1", long)
	got := last(t, b, "o1")[0]
	require.Equal(t, strings.Repeat("票", 21), got.What)
	require.Len(t, got.Said, 200)

	there, err := b.Erase(t.Context(), "card", "o1")
	require.NoError(t, err)
	require.True(t, there)
	require.Empty(t, last(t, b, "o1"))
	there, err = b.Erase(t.Context(), "card", "o1")
	require.NoError(t, err)
	require.False(t, there)
}

// What lies in Redis cannot be read there, nor given to another follower.
func TestActionsAreSealed(t *testing.T) {
	c := client(t, server(t))
	b := book(t, c)
	b.Add(t.Context(), "card", "o1", did(1))
	copied := redis.NewScript(`
local v = redis.call('LRANGE', KEYS[1], 0, 0)[1]
redis.call('LPUSH', KEYS[2], v)
return v`)
	raw, err := copied.Run(t.Context(), c, []string{redis.Tag("card.o1", "history"), redis.Tag("card.o1", "copy")})
	require.NoError(t, err)
	require.NotContains(t, raw, "bill")
	push := redis.NewScript(`return redis.call('LPUSH', KEYS[1], ARGV[1])`)
	_, err = push.Run(t.Context(), c, []string{redis.Tag("card.o2", "history")}, raw)
	require.NoError(t, err)
	require.Empty(t, last(t, b, "o2"))
}

func TestWithoutRedisNothingIsRemembered(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	b := book(t, client(t, s.Addr()))
	s.Close()
	b.Add(t.Context(), "card", "o1", did(1)) // returns, and that is all
	_, err = b.Last(t.Context(), "card", "o1")
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.NotContains(t, err.Error(), "o1")
}

func TestSettings(t *testing.T) {
	b, err := history.New(history.DefaultConfig(), nil, nil)
	require.NoError(t, err)
	require.Nil(t, b)
	b.Add(t.Context(), "card", "o1", did(1))
	require.Empty(t, last(t, b, "o1"))
	for want, cfg := range map[string]history.Config{
		"keep 101":        {Keep: 101},
		"ttl 1s":          {Keep: 1, TTL: time.Second},
		"32 random bytes": {Keep: 1, TTL: time.Hour, Key: "short"},
		"needs Redis":     {Keep: 1, TTL: time.Hour, Key: secret},
	} {
		_, err := history.New(cfg, nil, nil)
		require.ErrorContains(t, err, want)
	}
}
