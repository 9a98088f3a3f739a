package proxy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBudgetBoundsWhateverTheClientDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, hangUp := context.WithCancel(t.Context())
		b := newBudget(client, time.Second)
		defer b.release()
		hangUp()
		child, cancel := context.WithTimeout(b, time.Hour)
		defer cancel()
		require.NoError(t, b.Err(), "a client that hangs up undoes nothing")
		<-time.After(999 * time.Millisecond)
		require.NoError(t, child.Err())
		<-time.After(time.Millisecond)
		synctest.Wait()
		require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
		require.ErrorIs(t, b.Err(), context.DeadlineExceeded)
	})
}

func TestBudgetCostsNothingUnlessItIsAsked(t *testing.T) {
	asked := newBudget(t.Context(), time.Hour)
	require.NoError(t, asked.Err())
	asked.release()
	require.ErrorIs(t, asked.Err(), context.Canceled)

	b := newBudget(t.Context(), time.Hour)
	require.Zero(t, testing.AllocsPerRun(10, b.release))
	require.ErrorIs(t, b.Err(), context.Canceled, "who comes late finds it over")
}
