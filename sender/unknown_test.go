package sender_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/idgen"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/sender/intent"
)

// shifted is a clock that runs ahead.
type shifted struct {
	mu sync.Mutex
	by time.Duration
}

func (c *shifted) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.by)
}

func (c *shifted) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by += d
}

// G9: 200 pushes that may have arrived, and eight minutes have passed since their
// first try: they become unknown and are never sent again by themselves. Half of
// them were begun by a sender that died; the other half are answered by a reset
// after nine minutes. They stay unknown when their letters come again to another
// sender.
func TestUnknownIsNeverResentByItself(t *testing.T) {
	t.Parallel()
	const half = 100
	w := newWorld(t)
	clock := &shifted{}
	var faults []wechatsim.Fault
	for _, f := range w.followers[10:] {
		faults = append(faults, wechatsim.Fault{Do: wechatsim.FaultReset, Applied: true, API: wechatsim.PathTemplateSend, OpenID: f})
	}
	require.NoError(t, w.sim.SetFaults(faults...))
	w.onArrival(func(e wechatsim.Entry) {
		if e.Fault != "" {
			clock.advance(9 * time.Minute)
		}
	})
	begun := make([]string, half)
	for i := range begun {
		begun[i] = fmt.Sprintf("begun by the dead %d", i)
	}
	w.begunBefore(begun, 8*time.Minute)
	one := w.start(func(s *setup) { s.now = clock.now })
	var ids []string
	for i, name := range begun {
		ids = append(ids, w.push(name, to(w.followers[i%10])))
	}
	for _, id := range ids {
		got := w.outcome(id)
		require.Equal(t, wire.Unknown, got.State, "%+v", got)
		require.Zero(t, got.Attempt, "it was not tried by this sender")
	}
	require.Empty(t, w.arrivals(wechatsim.PathTemplateSend))
	for i := range half {
		id := w.push(late(i), to(w.followers[10+i%10]))
		got := w.outcome(id)
		require.Equal(t, wire.Unknown, got.State, "%+v", got)
		require.Equal(t, 1, got.Attempt)
		ids = append(ids, id)
		require.Equal(t, wire.Accepted, w.outcome(w.push(fmt.Sprint("well ", i), to(w.followers[0]))).State) // an answer, which keeps the road open
	}
	one.stop()
	w.start(func(s *setup) { s.now = clock.now })
	for i, name := range begun {
		require.Equal(t, ids[i], w.push(name, to(w.followers[i%10])))
		require.Equal(t, ids[half+i], w.push(late(i), to(w.followers[10+i%10])))
	}
	for _, id := range ids {
		require.Eventually(t, func() bool { return len(w.outcomes(id)) >= 2 }, 30*time.Second, 20*time.Millisecond, "no second receipt of %s", id)
		for _, r := range w.outcomes(id) {
			require.Equal(t, wire.Unknown, r.State)
		}
	}
	of := map[string]int{}
	for _, e := range w.arrivals(wechatsim.PathTemplateSend) {
		of[e.ClientMsgID]++
	}
	for i, id := range ids {
		require.Equal(t, i/half, of[id], "requests of push %d", i)
	}
	t.Logf("CI: G9   | bar: 200 pushes that may have arrived, 8 min after their first try: resent 0, unknown 200 | measured: resent 0, unknown %d, also when their letters came again to another sender | kept", len(ids))
}

func late(i int) string { return fmt.Sprint("answered late ", i) }

func to(openid string) func(*wire.Push) { return func(p *wire.Push) { p.OpenID = openid } }

// begunBefore writes the intents of a sender that died that long ago.
func (w *world) begunBefore(pushes []string, ago time.Duration) {
	w.t.Helper()
	db, err := sqldb.Open(w.t.Context(), w.db)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, db.Close()) }()
	s, err := intent.Open(w.t.Context(), db, intent.Options{Node: "dead", Now: func() time.Time { return time.Now().Add(-ago) }}, prometheus.NewRegistry())
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for i, name := range pushes {
		h := idgen.HashOf("push", "crm", name)
		past, err := s.Begin(ctx, intent.Key{ID: idgen.Derive(idgen.User(appID, w.followers[i%10]), h), IdentityHash: h.String()})
		require.NoError(w.t, err)
		require.True(w.t, past.Fresh)
	}
	cancel()
	require.NoError(w.t, <-done)
}
