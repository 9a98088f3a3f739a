package redismem_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidegate/pkg/redis/redismem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t testing.TB) *redismem.Server {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// conn is a plain connection; do returns the reply in one line of text.
type conn struct{ c *proto.Client }

func dial(t testing.TB, addr string) conn {
	c, err := proto.Dial(addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return conn{c}
}

func (c conn) do(args ...string) string {
	raw, err := c.c.Do(args...)
	if err != nil {
		return "broken: " + err.Error()
	}
	return strings.TrimSuffix(strings.ReplaceAll(raw, "\r\n", " "), " ")
}

// run is do for a command written with blanks.
func (c conn) run(line string) string { return c.do(strings.Fields(line)...) }

func (c conn) life(t *testing.T, key string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(c.do("PTTL", key), ":"))
	require.NoError(t, err)
	return n
}

func (c conn) eventuallyGone(t *testing.T, key string) {
	t.Helper()
	require.Eventually(t, func() bool { return c.do("EXISTS", key) == ":0" }, 5*time.Second, time.Millisecond, key)
}

// Every way to give a key a life of 40 ms makes it end, and not before.
func TestEveryLifeEnds(t *testing.T) {
	in := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).UnixMilli()) }
	ways := map[string]func(c conn) string{
		"set px":     func(c conn) string { return c.run("SET k v PX 40") },
		"set nx px":  func(c conn) string { return c.run("SET k v PX 40 NX") },
		"set nx get": func(c conn) string { return c.run("SET k v NX GET PX 40") },
		"set pxat":   func(c conn) string { return c.run("SET k v PXAT " + in(40*time.Millisecond)) },
		"psetex":     func(c conn) string { return c.run("PSETEX k 40 v") },
		"pexpire":    func(c conn) string { c.run("SET k v"); return c.run("PEXPIRE k 40") },
		"pexpire lt": func(c conn) string { c.run("SET k v EX 100"); return c.run("PEXPIRE k 40 LT") },
		"pexpireat":  func(c conn) string { c.run("SET k v"); return c.run("PEXPIREAT k " + in(40*time.Millisecond)) },
		"getex":      func(c conn) string { c.run("SET k v"); return c.run("GETEX k PX 40") },
		"keepttl":    func(c conn) string { c.run("SET k v PX 40"); return c.run("SET k w KEEPTTL") },
		"incr":       func(c conn) string { c.run("SET k 1 PX 40"); return c.run("INCR k") },
		"rename":     func(c conn) string { c.run("SET j v PX 40"); return c.run("RENAME j k") },
		"renamenx":   func(c conn) string { c.run("SET j v PX 40"); return c.run("RENAMENX j k") },
		"lua":        func(c conn) string { return c.do("EVAL", "return redis.call('SET', KEYS[1], 'v', 'PX', 40)", "1", "k") },
		"lua pexpire": func(c conn) string {
			c.run("HSET k f v")
			return c.do("EVAL", "return redis.call('PEXPIRE', KEYS[1], 40)", "1", "k")
		},
		"multi":        func(c conn) string { c.run("MULTI"); c.run("SET k v PX 40"); return c.run("EXEC") },
		"multi rename": func(c conn) string { c.run("SET j v PX 40"); c.run("MULTI"); c.run("RENAME j k"); return c.run("EXEC") },
		"list":         func(c conn) string { c.run("RPUSH k a b"); return c.run("PEXPIRE k 40") },
		"sorted set":   func(c conn) string { c.run("ZADD k 1 a"); return c.run("PEXPIRE k 40") },
		"shortened":    func(c conn) string { c.run("SET k v EX 1000"); c.run("EXPIRE k 500"); return c.run("PEXPIRE k 40") },
		"database 3":   func(c conn) string { c.run("SELECT 3"); return c.run("SET k v PX 40") },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			c := dial(t, start(t).Addr())
			begun := time.Now()
			reply := way(c)
			require.NotContains(t, reply, "-ERR")
			left := c.life(t, "k")
			if since := time.Since(begun); since < 35*time.Millisecond {
				require.Positive(t, left)
				require.LessOrEqual(t, left, 40)
			}
			c.eventuallyGone(t, "k")
			require.GreaterOrEqual(t, time.Since(begun), 38*time.Millisecond)
			require.Equal(t, "$-1", c.run("SET k again NX GET PX 1000"), "its place is free")
		})
	}
}

func TestLivesThatGoOn(t *testing.T) {
	for name, way := range map[string]string{
		"persist":           "PERSIST k",
		"longer":            "PEXPIRE k 100000",
		"getex persist":     "GETEX k PERSIST",
		"set without life":  "SET k w",
		"set longer":        "SET k w EX 100",
		"gt":                "EXPIRE k 100 GT",
		"deleted and anew":  "DEL k | SET k w",
		"renamed over":      "SET j w | RENAME j k",
		"refused nx":        "SET k w EX 100 | SET k x NX PX 1 | PEXPIRE k 1 NX | PEXPIRE k 1 GT",
		"refused xx on j":   "PERSIST k | PEXPIRE k 1 XX | SET j x XX PX 1",
		"renewed many ways": "EXPIRE k 100 | PEXPIRE k 100000 | SETEX k 100 w | PSETEX k 100000 w | GETEX k EX 100",
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, start(t).Addr())
			require.Equal(t, "+OK", c.run("SET k v PX 60"))
			require.Equal(t, "+OK", c.run("SET timer v PX 80"))
			for _, line := range strings.Split(way, " | ") {
				require.NotContains(t, c.run(line), "ERR")
			}
			c.eventuallyGone(t, "timer")
			require.Equal(t, ":1", c.run("EXISTS k"))
		})
	}
}

func TestRemainingLifeIsTrueEverywhere(t *testing.T) {
	c := dial(t, start(t).Addr())
	require.Equal(t, ":-2", c.run("PTTL k"))
	c.run("SET k v")
	require.Equal(t, ":-1", c.run("TTL k"))
	c.run("EXPIRE k 100")
	require.Equal(t, ":100", c.run("TTL k"))
	first := c.life(t, "k")
	require.Eventually(t, func() bool { return c.life(t, "k") < first }, time.Second, time.Millisecond, "it shrinks")
	lua, err := strconv.Atoi(strings.TrimPrefix(c.do("EVAL", "return redis.call('PTTL', KEYS[1])", "1", "k"), ":"))
	require.NoError(t, err)
	require.InDelta(t, first, lua, 5000)
	end, err := strconv.ParseInt(strings.TrimPrefix(c.run("PEXPIRETIME k"), ":"), 10, 64)
	require.NoError(t, err)
	require.InDelta(t, time.Now().UnixMilli()+100000, end, 5000)
	require.Contains(t, c.run("MULTI"), "OK")
	require.Contains(t, c.run("PTTL k"), "inside MULTI")
	require.Contains(t, c.run("EXEC"), "*0")
}

func TestErrorsAreThoseOfTheServer(t *testing.T) {
	c := dial(t, start(t).Addr())
	for _, line := range []string{"SET k v PX 0", "SET k v PX -5", "SET k v PX x", "SETEX k 0 v", "SETEX k v", "PEXPIRE k x", "EXPIRE k", "SET k v PX 99999999999999999", "EXPIRE k 9223372036854775807", "GETEX k PX 0", "RENAME a b", "RENAME a", "TTL", "SELECT x", "SELECT"} {
		require.Contains(t, c.run(line), "-ERR", line)
	}
	for _, line := range []string{"HEXPIRE k 1 FIELDS 1 f", "RESTORE k 0 x", "HGETEX k", "COPY a b", "MOVE a 1", "SWAPDB 0 1"} {
		require.Contains(t, c.run(line), "unknown command", line)
	}
	c.run("SET k v")
	require.Equal(t, ":1", c.run("PEXPIRE k -1"))
	require.Equal(t, ":0", c.run("EXISTS k"), "a life in the past ends at once")
	require.Equal(t, "+OK", c.run("SET k v PXAT 1"))
	require.Equal(t, ":0", c.run("EXISTS k"))
}

func TestUsersAndFaults(t *testing.T) {
	s := start(t)
	s.RequireUser("u", "p")
	c := dial(t, s.Addr())
	for _, line := range []string{"SET k v PX 10", "PTTL k", "INFO", "EXEC", "GET k"} {
		require.Contains(t, c.run(line), "NOAUTH", line)
	}
	require.Equal(t, "+OK", c.run("AUTH u p"))
	require.Equal(t, "+OK", c.run("SET k v EX 10"))
	require.Contains(t, c.run("INFO"), "tidegate_embedded:1")
	s.Fail("MISCONF no")
	require.Equal(t, "-MISCONF no", c.run("GET k"))
	s.Fail("")
	require.Contains(t, c.run("GET k"), "v")
	require.Positive(t, s.Commands())
	_, err := redismem.Start(s.Addr())
	require.ErrorContains(t, err, s.Addr())
	s.Close()
	s.Close()
}

// Many clients at once give short lives in all ways; in the end nothing is left.
func TestNothingOutlivesItsLifeUnderLoad(t *testing.T) {
	s := start(t)
	var wg sync.WaitGroup
	for g := range 8 {
		c := dial(t, s.Addr())
		wg.Go(func() {
			for i := range 150 {
				k, l := fmt.Sprint("k", i%7), fmt.Sprint("k", (i+g)%7)
				for _, reply := range []string{
					c.run("SET " + k + " v PX 1"),
					c.run("SET " + l + " v NX GET PX 3"),
					c.run("RENAME " + k + " " + l),
					c.run("PTTL " + l),
					c.do("EVAL", "redis.call('SET', KEYS[1], 'v', 'PX', 2) return redis.call('PTTL', KEYS[1])", "1", k),
					c.run("MULTI"), c.run("PSETEX " + k + " 1 v"), c.run("RENAME " + k + " " + l), c.run("EXEC"),
				} {
					if strings.HasPrefix(reply, "-") && !strings.Contains(reply, "no such key") && !strings.Contains(reply, "same") {
						assert.Fail(t, reply)
					}
				}
			}
		})
	}
	wg.Wait()
	c := dial(t, s.Addr())
	require.Eventually(t, func() bool { return c.run("DBSIZE") == ":0" }, 5*time.Second, time.Millisecond, "a key stayed for ever")
}

// The same random commands on a real Redis give the same replies.
func TestSameRepliesAsRedis(t *testing.T) {
	addr := os.Getenv("TIDEGATE_TEST_REDIS")
	if addr == "" {
		t.Skip("TIDEGATE_TEST_REDIS is not set")
	}
	theirs, ours := dial(t, addr), dial(t, start(t).Addr())
	base := fmt.Sprintf("test:redismem:%d:", time.Now().UnixNano())
	key := rapid.SampledFrom([]string{"a", "b", "c"})
	life := rapid.SampledFrom([]string{"EX 100", "PX 200000", "EX 300", ""})
	cond := rapid.SampledFrom([]string{"", "NX", "XX", "GT", "LT"})
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		k := func() string { return base + fmt.Sprint(run) + key.Draw(t, "key") }
		for step := range rapid.IntRange(1, 25).Draw(t, "steps") {
			// No two lives are equal, so GT and LT do not hang on a millisecond.
			seconds := fmt.Sprint(1000 + 10*step)
			line := rapid.OneOf(
				rapid.Custom(func(*rapid.T) string {
					opts := rapid.SampledFrom([]string{"", "NX", "XX", "GET", "NX GET", "XX GET"}).Draw(t, "opts")
					return "SET " + k() + " " + fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "v")) + " " + life.Draw(t, "life") + " " + opts
				}),
				rapid.Custom(func(*rapid.T) string { return "SET " + k() + " 5 KEEPTTL" }),
				rapid.Custom(func(*rapid.T) string { return "GET " + k() }),
				rapid.Custom(func(*rapid.T) string { return "DEL " + k() }),
				rapid.Custom(func(*rapid.T) string { return "INCR " + k() }),
				rapid.Custom(func(*rapid.T) string { return "PERSIST " + k() }),
				rapid.Custom(func(*rapid.T) string { return "SETEX " + k() + " 400 7" }),
				rapid.Custom(func(*rapid.T) string { return "PSETEX " + k() + " 500000 8" }),
				rapid.Custom(func(*rapid.T) string {
					return "EXPIRE " + k() + " " + rapid.SampledFrom([]string{seconds, seconds, "-1", "0"}).Draw(t, "s") + " " + cond.Draw(t, "cond")
				}),
				rapid.Custom(func(*rapid.T) string { return "GETEX " + k() + " " + life.Draw(t, "life") }),
				rapid.Custom(func(*rapid.T) string { return "RENAME " + k() + " " + k() }),
				rapid.Custom(func(*rapid.T) string { return "RENAMENX " + k() + " " + k() }),
				rapid.Custom(func(*rapid.T) string { return "TTL " + k() }),
			).Draw(t, "command")
			want, got := theirs.run(line), ours.run(line)
			if strings.HasPrefix(line, "TTL") {
				w, _ := strconv.Atoi(strings.TrimPrefix(want, ":"))
				g, err := strconv.Atoi(strings.TrimPrefix(got, ":"))
				if err != nil || w-g > 1 || g-w > 1 || (w < 0) != (g < 0) {
					t.Fatalf("%s: redis %s, embedded %s", line, want, got)
				}
			} else if want != got && !(strings.HasPrefix(want, "-ERR") && strings.HasPrefix(got, "-ERR")) {
				t.Fatalf("%s: redis %s, embedded %s", line, want, got)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			theirs.run("DEL " + base + fmt.Sprint(run) + name)
		}
	})
}

func BenchmarkSetNXPX(b *testing.B) {
	for _, keys := range []int{0, 100_000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			c := dial(b, start(b).Addr())
			for i := range keys {
				c.do("SET", fmt.Sprint("old", i), "v", "PX", "600000")
			}
			i := 0
			for b.Loop() {
				c.do("SET", fmt.Sprint("k", i), "v", "NX", "GET", "PX", "100")
				i++
			}
		})
	}
}
