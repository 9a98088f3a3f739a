package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

func TestConformanceBatch(t *testing.T) {
	engines(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		require.NoError(t, c.Set(ctx, "taken", "theirs", time.Minute))
		var all []*redis.Setting
		for i := range 50 { // over several slots of a cluster
			all = append(all, &redis.Setting{Key: fmt.Sprint("k", i), Value: "mine", TTL: time.Minute, IfAbsent: true})
		}
		taken := &redis.Setting{Key: "taken", Value: "mine", TTL: time.Minute, IfAbsent: true}
		endless := &redis.Setting{Key: "endless", Value: "mine", IfAbsent: true}
		c.SetAll(ctx, append(all, taken, endless))
		for _, s := range all {
			require.NoError(t, s.Err)
			require.True(t, s.Set, s.Key)
		}
		require.NoError(t, taken.Err)
		require.False(t, taken.Set)
		require.Equal(t, "theirs", taken.Prev)
		require.Equal(t, fault.Internal, fault.KindOf(endless.Err), "a batch sets nothing for ever")

		again := &redis.Setting{Key: "k7", Value: "mine", TTL: time.Minute, IfAbsent: true}
		over := &redis.Setting{Key: "taken", Value: "done", TTL: time.Minute}
		c.SetAll(ctx, []*redis.Setting{again, over})
		require.NoError(t, again.Err)
		require.Equal(t, "mine", again.Prev, "asking again finds the own token")
		require.NoError(t, over.Err)
		require.True(t, over.Set)
		v, found, err := c.Get(ctx, "taken")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "done", v)
		left, found, err := c.TTL(ctx, "k49")
		require.NoError(t, err)
		require.True(t, found)
		require.Greater(t, left, 30*time.Second)
		c.SetAll(ctx, nil)
	})
}

// A lost reply loses the answers of the whole batch, and none of them may look
// like an answer.
func TestBatchWithoutReplyIsAway(t *testing.T) {
	_, p, c, direct := behindProxy(t)
	require.NoError(t, c.Ping(t.Context()))
	p.SwallowReplies("nx", 1)
	all := []*redis.Setting{
		{Key: "a", Value: "1", TTL: time.Minute, IfAbsent: true},
		{Key: "b", Value: "1", TTL: time.Minute},
	}
	c.SetAll(t.Context(), all)
	for _, s := range all {
		require.Equal(t, fault.Unavailable, fault.KindOf(s.Err))
		require.False(t, s.Set)
	}
	require.Equal(t, 1, p.Swallowed(), "the fault happened, and the batch was sent once")
	_, found, err := direct.Get(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, found)
}

func TestRefusalsOfABatchStayWithTheirCommands(t *testing.T) {
	s, _, c, _ := behindProxy(t)
	require.NoError(t, c.Ping(t.Context()))
	s.Fail("OOM command not allowed")
	one := &redis.Setting{Key: "a", Value: "1", TTL: time.Minute, IfAbsent: true}
	c.SetAll(t.Context(), []*redis.Setting{one, {Key: "b", Value: "1", TTL: time.Minute}})
	require.Equal(t, fault.Unavailable, fault.KindOf(one.Err))
	require.ErrorContains(t, one.Err, "maxmemory")
	s.Fail("")
	c.SetAll(t.Context(), []*redis.Setting{one})
	require.NoError(t, one.Err)
	require.True(t, one.Set)
}

// Calls of one batch succeed and fail one by one, also on a server that does not
// know the script.
func TestConformanceScriptBatch(t *testing.T) {
	engines(t, func(t *testing.T, c *redis.Client) {
		s := redis.NewScript(fmt.Sprintf(`-- %d: a text the server has never seen
if ARGV[1] == '7' then return redis.error_reply('ERR seven') end
if ARGV[1] == '8' then return false end
return redis.call('INCRBY', KEYS[1], ARGV[1])`, time.Now().UnixNano()))
		var all []*redis.Call
		for i := range 40 {
			all = append(all, &redis.Call{Keys: []string{redis.Tag(fmt.Sprint("u", i), "n")}, Args: []any{i}})
		}
		mixed := &redis.Call{Keys: []string{redis.Tag("a", "n"), redis.Tag("b", "n")}, Args: []any{1}}
		for round := 1; round <= 2; round++ {
			s.RunAll(t.Context(), c, append(all, mixed))
			for i, call := range all {
				switch i {
				case 7:
					require.ErrorContains(t, call.Err, "seven")
				case 8:
					require.NoError(t, call.Err)
					require.Nil(t, call.Result)
				default:
					require.NoError(t, call.Err)
					require.Equal(t, int64(i*round), call.Result)
				}
			}
			require.ErrorContains(t, mixed.Err, "different hash tags")
		}
		s.RunAll(t.Context(), c, nil)
	})
}
