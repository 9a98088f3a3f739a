package receipts_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/receipts"
)

// sums asks the operations listener, and holds every answer to the invariant:
// messages are the sum of the places that they are in.
func (w *world) sums() map[wire.Kind]receipts.Conservation {
	w.Helper()
	rec := httptest.NewRecorder()
	w.room.Ops()["GET /ops/v1/conservation"].ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/ops/v1/conservation", nil))
	require.Equal(w, http.StatusOK, rec.Code, rec.Body)
	var v struct{ Sums []receipts.Conservation }
	require.NoError(w, json.Unmarshal(rec.Body.Bytes(), &v))
	out := map[wire.Kind]receipts.Conservation{}
	for _, c := range v.Sums {
		ended := int64(0)
		for _, n := range c.Ended {
			ended += n
		}
		require.Equal(w, c.Messages, ended+c.Accepted+c.Held+c.Sending+c.Queued, "%+v", c)
		if c.Account == "bank" {
			out[c.Kind] = c
		}
	}
	return out
}

// G30: the sums hold at every look, in motion too; at rest what the rows say is
// queued is what is measured, and the counts equal a recount.
func TestG30ReportsAddUp(t *testing.T) {
	each(t, func(w *world) {
		const n = 60
		for i := range n {
			w.queue(w.push(i))
			w.sums()
		}
		w.settled(n, wire.Queued)
		rest := func() bool { c := w.sums()[wire.KindPush]; return c.Difference == 0 && c.Unnoted == 0 }
		require.Eventually(w, rest, 30*time.Second, 10*time.Millisecond)
		require.EqualValues(w, n, w.sums()[wire.KindPush].Waiting, "nobody has read them")

		// A sender reads them and tells outcomes; some are held, some end.
		states := []wire.State{wire.Accepted, wire.Dead, wire.Held, wire.Rejected}
		ctx, cancel := context.WithCancel(context.Background())
		done, read := make(chan error, 1), make(chan struct{}, n)
		g, err := kafka.NewGroup(w.kafka, kafka.GroupOptions{Group: w.topics.SenderGroup("bank", wire.LaneRealtime), Topics: []string{w.topics.Pushes("bank", wire.LaneRealtime)},
			Handler: func(_ context.Context, r kafka.Record) error {
				p, err := wire.Decode[wire.Push](r.Value, r.Headers)
				if err == nil {
					w.outcome(p, states[int(p.OpenID[len(p.OpenID)-1]-'0')%len(states)])
					read <- struct{}{}
				}
				return err
			}}, zap.NewNop(), prometheus.NewRegistry())
		require.NoError(w, err)
		go func() { done <- g.Run(ctx) }()
		for range n {
			<-read
			w.sums()
		}
		cancel()
		require.NoError(w, <-done)
		require.Eventually(w, func() bool { c := w.sums()[wire.KindPush]; return c.Queued == 0 && c.Waiting == 0 && rest() }, 30*time.Second, 10*time.Millisecond)
		c := w.sums()[wire.KindPush]
		require.EqualValues(w, n, c.Messages)
		require.EqualValues(w, n, c.Accepted+c.Held+c.Ended[wire.Dead]+c.Ended[wire.Rejected])
		require.Positive(w, c.Held)
		again, err := w.room.Store().Recount(w.Context(), false)
		require.NoError(w, err)
		require.EqualValues(w, n, again.Rows)
		require.Zero(w, again.Wrong, "%v", again.Deviations)
		require.Eventually(w, func() bool { // the next round of the room shows it
			return w.metric("tidegate_receipts_messages") == n && w.metric("tidegate_receipts_conservation_difference") == 0 && w.metric("tidegate_receipts_waiting") == 0
		}, 30*time.Second, 10*time.Millisecond)
	})
}
