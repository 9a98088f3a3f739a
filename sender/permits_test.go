package sender

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wechat"
)

// A road that WeChat calls too fast is slowed on all senders, and all get the
// rate back together.
func TestASlowedRoadIsSlowedOverTheCluster(t *testing.T) {
	nodes, rates := twoSenders(t)
	rates(160)
	refused(t, nodes[0], day)
	rates(80)
	refused(t, nodes[1], day) // the same moment, seen by another node: it is one slowing
	rates(80)
	require.Equal(t, 0.5, nodes[1].share())

	now := day
	for range 4 { // one has recovered; the other is still refused
		now = now.Add(recoverEvery)
		nodes[0].recover(now)
	}
	require.Equal(t, 1.0, nodes[0].share())
	rates(80)
	nodes[1].places.Close() // it is gone
	nodes[1].pace.Close()
	nodes[1] = nodes[0]
	rates(160)

	leave, err := nodes[0].places.Acquire(t.Context(), 0)
	require.NoError(t, err)
	leave()
	release, err := nodes[0].pace.Acquire(t.Context(), 0)
	require.NoError(t, err)
	release()
}

// A sender whose live settings lag slows the others all the same: permits go by
// the highest version of a limit, and it speaks for that one.
func TestASenderThatLagsSlowsTheCluster(t *testing.T) {
	nodes, rates := twoSenders(t)
	rates(160)
	raised := ratelimit.Limit{Rate: 200, Burst: 20, Concurrency: 8}
	nodes[0].setLimit(raised, 12, 0)
	rates(200)
	refused(t, nodes[1], day)
	rates(100)
	raised.Rate = 400
	nodes[0].setLimit(raised, 13, 0) // a newer one puts the slowing aside for a moment
	rates(400)
	now := day
	nodes[1].learn(ticket{}, answer{class: tooFast, code: 45011}, "", now.Add(slowAgain))
	rates(100)
	now = now.Add(slowAgain)
	for range 8 {
		now = now.Add(recoverEvery)
		nodes[1].recover(now)
	}
	require.Equal(t, 1.0, nodes[1].share())
	rates(400)
}

func refused(t *testing.T, r *road, now time.Time) {
	t.Helper()
	tk, wait := r.enter(now)
	require.Zero(t, wait)
	r.learn(tk, answer{class: tooFast, code: 45011}, "", now)
}

// twoSenders are the roads of two processes over one Redis, and what waits until
// both know of a rate.
func twoSenders(t *testing.T) (nodes []*road, rates func(want float64)) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	cfg := redis.DefaultConfig()
	cfg.Addrs = []string{s.Addr()}
	l := ratelimit.Limit{Rate: 160, Burst: 16, Concurrency: 8}
	for range 2 { // two processes, each with a client of its own
		c, err := redis.Open(cfg, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		cl, err := ratelimit.NewCluster(ratelimit.DefaultConfig(), c, nil, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cl.Close(context.Background())) })
		permits := Permits(func(name string, l ratelimit.Limit) ratelimit.Permits { return cl.Permits(name, l) })
		nodes = append(nodes, newRoad("shop", wechat.APITemplateSend, l, &brake{}, 0, permits, zap.NewNop()))
	}
	return nodes, func(want float64) {
		t.Helper()
		for i, r := range nodes {
			require.Eventually(t, func() bool { return r.pace.(*ratelimit.Shared).Limit().Rate == want }, 20*time.Second, time.Millisecond, "node %d: %v a second", i, want)
		}
	}
}
