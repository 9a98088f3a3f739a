package robot

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/robot/engine"
)

func TestLaterIsMadeForWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		bound := func(p context.Context) (context.Context, context.CancelFunc) {
			made++
			return context.WithTimeoutCause(p, time.Second, errImpatient)
		}
		type key struct{}
		parent := context.WithValue(t.Context(), key{}, "value")

		ctx, cancel := whenAsked(parent, bound)
		require.NoError(t, ctx.Err())
		require.Equal(t, "value", ctx.Value(key{}))
		cancel()
		require.ErrorIs(t, ctx.Err(), context.Canceled, "it is over")
		require.Zero(t, made, "and was never made")
		<-ctx.Done() // nor can be waited for in vain

		ctx, cancel = whenAsked(parent, bound)
		defer cancel()
		<-ctx.Done()
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		require.ErrorIs(t, context.Cause(ctx), errImpatient, "the cause is told")
		require.Equal(t, "value", ctx.Value(key{}))
		require.Equal(t, 2, made)
	})
}

func TestLaterEndsWithItsParentAndItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("lost")
		parent, end := context.WithCancelCause(t.Context())
		ctx := &errand{}
		ctx.send(parent, time.Minute, turn{level: engine.Marketing})
		defer ctx.end()
		child, stop := context.WithCancel(ctx) // as net/http derives its own
		defer stop()
		<-time.After(time.Second)
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, 59*time.Second, time.Until(deadline), "counted from the beginning, and not from the first look")
		end(why)
		<-child.Done()
		require.ErrorIs(t, context.Cause(child), why)
		require.ErrorIs(t, context.Cause(ctx), why)

		require.Equal(t, engine.Marketing, turnOf(child).level)

		ctx = &errand{}
		ctx.send(parent, time.Minute, turn{})
		defer ctx.end()
		require.ErrorIs(t, ctx.Err(), context.Canceled, "of a parent that has ended")
	})
}
