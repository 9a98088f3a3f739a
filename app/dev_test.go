package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/app"
)

type devSummary struct {
	OK             bool    `json:"ok"`
	Accepted       int64   `json:"accepted"`
	Replied        int64   `json:"replied"`
	RepliesRefused int64   `json:"replies_refused"`
	Repeats        int64   `json:"repeats"`
	Lost           int64   `json:"lost"`
	Doubled        int64   `json:"doubled"`
	OutOfOrder     int64   `json:"out_of_order"`
	AckP99         float64 `json:"ack_p99_ms"`
	PushesAccepted int64   `json:"pushes_accepted"`
	PushesSent     int64   `json:"pushes_sent"`
	ReceiptsJoined int64   `json:"receipts_joined"`
	Broken         int64   `json:"broken"`
}

// dev runs `tidegate dev --json` in this process.
func dev(t *testing.T, o app.DevOptions) (devSummary, error) {
	t.Helper()
	var out bytes.Buffer
	o.JSON, o.Out, o.Err, o.Pushes = true, &out, io.Discard, -1
	err := app.Dev(t.Context(), o)
	var s devSummary
	require.NoError(t, json.Unmarshal(out.Bytes(), &s), "%v: %s", err, out.String())
	return s, err
}

func TestDevRunsTheMainJobAndLosesNothing(t *testing.T) {
	s, err := dev(t, app.DevOptions{For: 4 * time.Second, Rate: 100})
	require.NoError(t, err)
	require.True(t, s.OK)
	require.Greater(t, s.Accepted, int64(50))
	require.Greater(t, s.Replied, int64(40))
	require.Positive(t, s.AckP99)
	require.Positive(t, s.PushesAccepted)
	require.Equal(t, s.PushesAccepted, s.PushesSent)
	require.Equal(t, s.PushesSent, s.ReceiptsJoined)
	require.Zero(t, s.Lost+s.Doubled+s.OutOfOrder)
}

// The judge must be able to fail: each injected fault is seen as what it is.
func TestDevSeesEveryInjectedFault(t *testing.T) {
	for kind, count := range map[string]func(devSummary) int64{
		"lose":    func(s devSummary) int64 { return s.Lost },
		"double":  func(s devSummary) int64 { return s.Doubled },
		"reorder": func(s devSummary) int64 { return s.OutOfOrder },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, err := dev(t, app.DevOptions{For: 4 * time.Second, Rate: 20, Break: kind}) // the rate of a bare `dev`
			require.ErrorIs(t, err, app.ErrReported)
			require.Equal(t, int64(1), s.Broken, "the fault must have happened")
			require.Equal(t, int64(1), count(s))
			require.Equal(t, int64(1), s.Lost+s.Doubled+s.OutOfOrder, "and nothing else")
			require.False(t, s.OK)
		})
	}
}

// A run too short for its fault must not look like a judge that found nothing.
func TestDevSaysThatTheFaultDidNotHappen(t *testing.T) {
	s, err := dev(t, app.DevOptions{For: time.Second, Rate: 2, Break: "lose"})
	require.ErrorIs(t, err, app.ErrReported)
	require.Zero(t, s.Broken)
	require.False(t, s.OK)
}

// What was accepted in one run is not forgotten in the next.
func TestDevKeepsItsStateInADirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := dev(t, app.DevOptions{For: 2 * time.Second, Rate: 50, Data: dir})
	require.NoError(t, err)
	second, err := dev(t, app.DevOptions{For: 2 * time.Second, Rate: 50, Data: dir})
	require.NoError(t, err)
	require.Greater(t, second.Accepted, first.Accepted)
	require.Greater(t, second.ReceiptsJoined, first.ReceiptsJoined)
	require.True(t, second.OK)
}

func TestDevRefusesWhatCannotBe(t *testing.T) {
	for name, o := range map[string]app.DevOptions{
		"--rate":  {Rate: -1},
		"--for":   {For: -time.Second},
		"--port":  {Port: 70000},
		"--break": {Break: "everything"},
	} {
		err := app.Dev(context.Background(), o)
		require.ErrorIs(t, err, app.ErrUsage, name)
		require.ErrorContains(t, err, name)
	}
}
