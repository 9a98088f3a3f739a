package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/run"
)

// A part that does not end must not cost the others their time: what closes
// the engines afterwards has the rest of the same deadline.
func TestOneDeadlineForTheWholeStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10 * time.Second
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		g := run.NewGroup(ctx)
		g.Go(run.Func("deaf", func(context.Context) error { <-release; return nil }))
		asked := time.Now()
		cancel()
		stopBy, err := waitFor(g, limit)
		require.ErrorContains(t, err, "did not stop within 9s")
		require.Equal(t, asked.Add(limit), stopBy)
		require.Equal(t, limit/10, time.Until(stopBy))
		close(release)
		require.NoError(t, g.Wait())
	})
}
