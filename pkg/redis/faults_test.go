package redis_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// behindProxy is an embedded server, a client through a proxy and one past it.
func behindProxy(t *testing.T) (*redismem.Server, *redismem.Proxy, *redis.Client, *redis.Client) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	p, err := redismem.StartProxy(s.Addr())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	cfg := config(p.Addr())
	through := open(t, cfg)
	cfg.Addrs = []string{s.Addr()}
	return s, p, through, open(t, cfg)
}

// go-redis by default counts 2 for 1 here.
func TestWritesAreSentOnce(t *testing.T) {
	_, p, c, direct := behindProxy(t)
	ctx := t.Context()
	count := redis.NewScript("return redis.call('INCR', KEYS[1])")
	_, err := count.Run(ctx, c, []string{"n"}) // the server knows the script
	require.NoError(t, err)
	for i := range 10 {
		p.SwallowReplies("incr", 1)
		_, err := c.Incr(ctx, "n")
		require.Equal(t, fault.Unavailable, fault.KindOf(err), "a write without an answer is not repeated")
		p.SwallowReplies("evalsha", 1)
		_, err = count.Run(ctx, c, []string{"n"})
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
		require.Equal(t, 2*(i+1), p.Swallowed(), "the fault happened")
	}
	n, err := direct.Incr(ctx, "n")
	require.NoError(t, err)
	require.EqualValues(t, 1+20+1, n)
}

func TestReadsAreTriedTwice(t *testing.T) {
	_, p, c, direct := behindProxy(t)
	require.NoError(t, direct.Set(t.Context(), "k", "v", 0))
	p.SwallowReplies("get", 1)
	v, found, err := c.Get(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "v", v)
	require.Equal(t, 1, p.Swallowed(), "the fault happened")
}

func TestHangingServerCostsTheShorterOfContextAndTimeout(t *testing.T) {
	_, p, c, _ := behindProxy(t)
	require.NoError(t, c.Ping(t.Context()))
	p.Hang(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, _, err := c.SetNXGet(ctx, "k", "v", time.Second)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Less(t, time.Since(begun), time.Second)
	require.NotZero(t, p.Held(), "the fault happened")

	cfg := config(p.Addr())
	cfg.Timeout = 50 * time.Millisecond
	begun = time.Now()
	err = open(t, cfg).Ping(context.Background())
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Less(t, time.Since(begun), 3*time.Second)
	p.Hang(false)
	require.Eventually(t, func() bool { return c.Ping(t.Context()) == nil }, 5*time.Second, 10*time.Millisecond)
}

func TestRefusedConnectionIsUnavailableAtOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	require.NoError(t, ln.Close())
	c := open(t, config(addr))
	begun := time.Now()
	require.Equal(t, fault.Unavailable, fault.KindOf(c.Ping(t.Context())))
	require.Less(t, time.Since(begun), time.Second)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "twice does no harm")
	require.Equal(t, fault.Unavailable, fault.KindOf(c.Ping(t.Context())))
}

func TestAnswersThatMeanAway(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c := open(t, config(s.Addr()))
	require.NoError(t, c.Ping(t.Context()))
	for text, want := range map[string]fault.Kind{
		"MISCONF Redis is configured to save RDB snapshots": fault.Unavailable,
		"OOM command not allowed when used memory":          fault.Unavailable,
		"READONLY You can't write against a read only":      fault.Unavailable,
		"LOADING Redis is loading the dataset in memory":    fault.Unavailable,
		"MASTERDOWN Link with MASTER is down":               fault.Unavailable,
		"NOREPLICAS Not enough good replicas to write.":     fault.Unavailable,
		"CLUSTERDOWN The cluster is down":                   fault.Unavailable,
		"TRYAGAIN Multiple keys request during rehashing":   fault.Unavailable,
		"NOSCRIPT No matching script. Please use EVAL.":     fault.Unavailable,
		"BUSY Redis is busy running a script":               fault.Unavailable,
		"ERR max number of clients reached":                 fault.Unavailable,
		"NOAUTH Authentication required.":                   fault.Denied,
		"WRONGPASS invalid username-password pair":          fault.Denied,
		"NOPERM User x has no permissions":                  fault.Denied,
		"WRONGTYPE Operation against a key":                 fault.Internal,
		"ERR syntax error":                                  fault.Internal,
		"CROSSSLOT Keys in request don't hash":              fault.Internal,
	} {
		s.Fail(text)
		_, _, err := c.Get(t.Context(), "k")
		require.ErrorContains(t, err, text[:8])
		require.Equal(t, want, fault.KindOf(err), "get: %s", text)
		_, err = c.CompareAndDelete(t.Context(), "k", "v")
		require.Equal(t, want, fault.KindOf(err), "script: %s", text)
	}
	s.Fail("")
	require.NoError(t, c.Ping(t.Context()))
}

func TestMetricsShowPoolAndFailuresWithoutKeys(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c := open(t, config(s.Addr()))
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c.Collector()))
	require.NoError(t, c.Set(t.Context(), "secret-openid", "v", 0))
	s.Fail("OOM x")
	require.Error(t, c.Set(t.Context(), "secret-openid", "v", 0))
	all, err := reg.Gather()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, f := range all {
		seen[f.GetName()] = true
		require.NotContains(t, f.String(), "openid")
	}
	for _, name := range []string{"tidegate_redis_pool_connections", "tidegate_redis_pool_events_total", "tidegate_redis_command_seconds", "tidegate_redis_failures_total"} {
		require.True(t, seen[name], name)
	}
}
