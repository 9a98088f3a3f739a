package redis_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engines runs a test on the embedded server and on every real set-up that the
// environment names:
//
//	TIDEGATE_TEST_REDIS           host:port
//	TIDEGATE_TEST_REDIS_SENTINEL  master@host:port,host:port
//	TIDEGATE_TEST_REDIS_CLUSTER   host:port,host:port
func engines(t *testing.T, run func(t *testing.T, c *redis.Client)) {
	t.Run("embedded", func(t *testing.T) {
		s, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(s.Close)
		run(t, open(t, config(s.Addr())))
	})
	if addr := os.Getenv("TIDEGATE_TEST_REDIS"); addr != "" {
		t.Run("single", func(t *testing.T) { run(t, open(t, config(addr))) })
	}
	if v := os.Getenv("TIDEGATE_TEST_REDIS_SENTINEL"); v != "" {
		t.Run("sentinel", func(t *testing.T) {
			master, addrs, _ := strings.Cut(v, "@")
			cfg := config(strings.Split(addrs, ",")...)
			cfg.Mode, cfg.Master = redis.Sentinel, master
			run(t, open(t, cfg))
		})
	}
	if addrs := os.Getenv("TIDEGATE_TEST_REDIS_CLUSTER"); addrs != "" {
		t.Run("cluster", func(t *testing.T) {
			cfg := config(strings.Split(addrs, ",")...)
			cfg.Mode = redis.Cluster
			run(t, open(t, cfg))
		})
	}
}

// config has a prefix that no other test has.
func config(addrs ...string) redis.Config {
	cfg := redis.DefaultConfig()
	cfg.Addrs = addrs
	cfg.Prefix = fmt.Sprintf("test:redis:%d", time.Now().UnixNano())
	cfg.Timeout = 2 * time.Second
	return cfg
}

func open(t *testing.T, cfg redis.Config) *redis.Client {
	t.Helper()
	c, err := redis.Open(cfg, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestConformanceStrings(t *testing.T) {
	engines(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		require.NoError(t, c.Ping(ctx))
		_, found, err := c.Get(ctx, "a")
		require.NoError(t, err)
		require.False(t, found)

		require.NoError(t, c.Set(ctx, "a", "1", 0))
		v, found, err := c.Get(ctx, "a")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "1", v)
		left, found, err := c.TTL(ctx, "a")
		require.NoError(t, err)
		require.True(t, found)
		require.Negative(t, left, "no life means for ever")

		n, err := c.Incr(ctx, "a")
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		was, err := c.Del(ctx, "a")
		require.NoError(t, err)
		require.True(t, was)
		was, err = c.Del(ctx, "a")
		require.NoError(t, err)
		require.False(t, was)
	})
}

func TestConformanceClaim(t *testing.T) {
	engines(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		prev, set, err := c.SetNXGet(ctx, "k", "mine", time.Minute)
		require.NoError(t, err)
		require.True(t, set)
		require.Empty(t, prev)

		// The second claim sees the first and neither changes the value nor prolongs its life.
		require.NoError(t, c.Set(ctx, "k", "mine", 10*time.Second))
		prev, set, err = c.SetNXGet(ctx, "k", "other", time.Hour)
		require.NoError(t, err)
		require.False(t, set)
		require.Equal(t, "mine", prev)
		left, _, err := c.TTL(ctx, "k")
		require.NoError(t, err)
		require.LessOrEqual(t, left, 10*time.Second)
		require.Greater(t, left, 5*time.Second)

		_, _, err = c.SetNXGet(ctx, "k2", "x", 0)
		require.Equal(t, fault.Internal, fault.KindOf(err), "a claim without an end would block its key for ever")
	})
}

func TestConformanceCompare(t *testing.T) {
	engines(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		require.NoError(t, c.Set(ctx, "k", "a", time.Minute))
		for _, step := range []struct {
			name string
			do   func() (bool, error)
			want bool
		}{
			{"delete of another's value", func() (bool, error) { return c.CompareAndDelete(ctx, "k", "b") }, false},
			{"expire of another's value", func() (bool, error) { return c.CompareAndExpire(ctx, "k", "b", time.Hour) }, false},
			{"set over another's value", func() (bool, error) { return c.CompareAndSet(ctx, "k", "b", "c", time.Hour) }, false},
			{"expire of own value", func() (bool, error) { return c.CompareAndExpire(ctx, "k", "a", time.Hour) }, true},
			{"set over own value", func() (bool, error) { return c.CompareAndSet(ctx, "k", "a", "c", time.Hour) }, true},
			{"the same set again, as after a lost reply", func() (bool, error) { return c.CompareAndSet(ctx, "k", "a", "c", time.Hour) }, true},
			{"delete of own value", func() (bool, error) { return c.CompareAndDelete(ctx, "k", "c") }, true},
			{"set of a missing key", func() (bool, error) { return c.CompareAndSet(ctx, "k", "c", "d", time.Hour) }, false},
			{"expire of a missing key", func() (bool, error) { return c.CompareAndExpire(ctx, "k", "c", time.Hour) }, false},
		} {
			got, err := step.do()
			require.NoError(t, err, step.name)
			require.Equal(t, step.want, got, step.name)
		}
	})
}

func TestConformanceScript(t *testing.T) {
	engines(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		s := redis.NewScript(fmt.Sprintf(`-- %d: a text the server has never seen
redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000)
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]) > 50000, 7, false}`, time.Now().UnixNano()))
		for range 2 { // first by text, then by digest
			v, err := s.Run(ctx, c, []string{redis.Tag("x", "k")}, "hello")
			require.NoError(t, err)
			require.Equal(t, []any{"hello", int64(1), int64(7), nil}, v)
		}
		v, _, err := c.Get(ctx, redis.Tag("x", "k"))
		require.NoError(t, err)
		require.Equal(t, "hello", v, "scripts and commands see the same key")

		_, err = redis.NewScript("return redis.call('INCR', KEYS[1])").Run(ctx, c, []string{redis.Tag("x", "k")})
		require.Equal(t, fault.Internal, fault.KindOf(err))
		v2, err := redis.NewScript("return false").Run(ctx, c, nil)
		require.NoError(t, err)
		require.Nil(t, v2)
	})
}

func TestConformancePubSub(t *testing.T) {
	engines(t, func(t *testing.T, c *redis.Client) {
		ctx, stop := context.WithCancel(t.Context())
		got := make(chan redis.Message, 100)
		ended := make(chan error, 1)
		go func() { ended <- c.Subscribe(ctx, func(m redis.Message) { got <- m }, "news") }()
		require.Eventually(t, func() bool { // announcements before the subscription are lost, so repeat
			require.NoError(t, c.Publish(ctx, "news", "hello"))
			select {
			case m := <-got:
				return m == redis.Message{Channel: "news", Payload: "hello"}
			default:
				return false
			}
		}, 5*time.Second, 10*time.Millisecond)
		stop()
		require.NoError(t, <-ended)
	})
}

func TestConformanceLives(t *testing.T) {
	engines(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		gone := func(key string) func() bool {
			return func() bool {
				_, found, err := c.Get(ctx, key)
				require.NoError(t, err)
				return !found
			}
		}
		require.NoError(t, c.Set(ctx, "short", "1", 50*time.Millisecond))
		require.NoError(t, c.Set(ctx, "kept", "1", 50*time.Millisecond))
		ok, err := c.Expire(ctx, "kept", time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, c.Set(ctx, "forever", "1", 50*time.Millisecond))
		require.NoError(t, c.Set(ctx, "forever", "2", 0))
		require.Eventually(t, gone("short"), 5*time.Second, 5*time.Millisecond)
		require.False(t, gone("kept")())
		require.False(t, gone("forever")())
		ok, err = c.Expire(ctx, "short", time.Minute)
		require.NoError(t, err)
		require.False(t, ok)

		// A claim can be taken as soon as the one before has ended.
		_, set, err := c.SetNXGet(ctx, "claim", "a", 50*time.Millisecond)
		require.NoError(t, err)
		require.True(t, set)
		require.Eventually(t, func() bool {
			_, set, err := c.SetNXGet(ctx, "claim", "b", time.Minute)
			require.NoError(t, err)
			return set
		}, 5*time.Second, 5*time.Millisecond)
	})
}

func TestConformanceInfo(t *testing.T) {
	engines(t, func(t *testing.T, c *redis.Client) {
		i, err := c.Info(t.Context())
		require.NoError(t, err)
		require.Regexp(t, `^([7-9]|\d\d)\.`, i.Version)
		require.Equal(t, "master", i.Role)
		require.Empty(t, i.Unknown)
		for _, a := range i.Advice() {
			require.False(t, a.Fatal, a.Text)
		}
		now, err := c.Time(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), now, time.Minute)
	})
}
