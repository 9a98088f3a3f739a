package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The share of the gate: smaller at once, larger only when the others have heard.
func TestShareOfTheGate(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Gate, cfg.Nodes = 48, 4
	m := newMode(cfg)
	now := time.Now()
	hear := func(after time.Duration, nodes int) int {
		now = now.Add(after)
		m.hear(now, pulse{nodes: nodes})
		return m.gateShare(now)
	}
	require.Equal(t, 12, m.gateShare(now), "nothing heard: by the largest number of nodes")
	require.Equal(t, 12, hear(0, 1))
	require.Equal(t, 12, hear(200*time.Millisecond, 1))
	require.Equal(t, 48, hear(50*time.Millisecond, 1), "it has been alone for long enough")
	require.Equal(t, 16, hear(50*time.Millisecond, 3), "two others came: at once")
	require.Equal(t, 16, hear(50*time.Millisecond, 1))
	require.Equal(t, 16, hear(200*time.Millisecond, 2), "one came back meanwhile: the time begins anew")
	require.Equal(t, 16, hear(200*time.Millisecond, 2))
	require.Equal(t, 24, hear(50*time.Millisecond, 2))
	now = now.Add(newsLife)
	require.Equal(t, 12, m.gateShare(now), "the news is old")
	require.Equal(t, 12, hear(0, 2))
	m.forget()
	require.Equal(t, 12, m.gateShare(now))
	require.Equal(t, 6, hear(0, 8), "more nodes than were allowed for")
}
