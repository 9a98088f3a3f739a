package app

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/receipts"
	"tidegate/receipts/store"
)

// One press on the whole road: the command shows it from the door to the
// sender's attempt, and the counts of the rows are right.
func TestTraceShowsTheWholeRoad(t *testing.T) {
	w, err := startDev(t.Context(), DevOptions{}, t.TempDir(), zap.NewNop())
	defer func() { require.NoError(t, w.stop()) }()
	require.NoError(t, err)
	users, err := w.sim.Followers("", 1)
	require.NoError(t, err)
	d, err := w.sim.Act(t.Context(), "", wechatsim.Menu(users[0], "BILL:1"))
	require.NoError(t, err)
	require.True(t, d.Acked)
	var id string
	require.Eventually(t, func() bool {
		ms, err := w.parts[RoleReceipts].store.List(t.Context(), store.Filter{Kinds: []wire.Kind{wire.KindReply}}, nil, 1)
		if err == nil && len(ms) == 1 && ms[0].AcceptedAt > 0 {
			id = ms[0].CallbackID
		}
		return id != ""
	}, 30*time.Second, 20*time.Millisecond)
	var v receipts.TraceView
	require.Eventually(t, func() bool {
		var out bytes.Buffer
		if Trace(t.Context(), TraceOptions{Ops: "http://" + w.ops.Addr(), ID: id, JSON: true, Out: &out}) != nil {
			return false
		}
		require.NoError(t, json.Unmarshal(out.Bytes(), &v))
		return len(v.Messages) == 2
	}, 30*time.Second, 20*time.Millisecond)
	var out bytes.Buffer
	require.NoError(t, Trace(t.Context(), TraceOptions{Ops: "http://" + w.ops.Addr(), ID: id, Out: &out}))
	for _, word := range []string{"received", "claimed", "queued", "partition ", " offset ", "answered", "accepted", w.engines.hasher.OpenID(users[0])} {
		require.Contains(t, out.String(), word)
	}
	require.NotContains(t, out.String(), users[0])
	again, err := w.parts[RoleReceipts].store.Recount(t.Context(), false)
	require.NoError(t, err)
	require.Zero(t, again.Wrong)
	require.Positive(t, again.Rows)
}

func TestTraceSaysWhatIsWrong(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	err := Trace(t.Context(), TraceOptions{Ops: s.URL, ID: "12", Out: &bytes.Buffer{}})
	require.ErrorIs(t, err, ErrUsage)
	require.ErrorContains(t, err, "23 digits")
	require.Error(t, Recount(t.Context(), RecountOptions{Source: Source{File: filepath.Join(t.TempDir(), "none.yaml")}, Out: &bytes.Buffer{}}))
}
