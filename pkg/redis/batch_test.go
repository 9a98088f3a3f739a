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
