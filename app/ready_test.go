package app

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A queue that hangs does not take a door with a spool out of rotation: the
// spool is asked first, and the queue not at all.
func TestReadyWhileQueueHangs(t *testing.T) {
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	require.NoError(t, either(hangs, func() error { return nil })(t.Context()))
}

// Without a spool, or with a full one, the queue decides; both reasons are told.
func TestReadyByQueue(t *testing.T) {
	full := errors.New("the spool is full")
	away := errors.New("no broker")
	require.NoError(t, either(func(context.Context) error { return nil }, func() error { return full })(t.Context()))
	err := either(func(context.Context) error { return away }, func() error { return full })(t.Context())
	require.ErrorIs(t, err, full)
	require.ErrorIs(t, err, away)
}
