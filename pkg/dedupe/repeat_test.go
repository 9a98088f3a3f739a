package dedupe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/fault"
	"tidegate/pkg/redis/redismem"
)

func TestUserRepeats(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	ctx := t.Context()
	ask := func(openid, action, identity string) bool {
		t.Helper()
		again, release, err := s.Repeat(ctx, "acc", openid, action, identity, time.Minute)
		require.NoError(t, err)
		require.NotNil(t, release)
		return again
	}
	require.False(t, ask("u1", "menu:bill", "id1"))
	require.False(t, ask("u1", "menu:bill", "id1"), "WeChat's own retry carries the same identity")
	for range 9 { // B3.5: ten in ten seconds, one worked
		require.True(t, ask("u1", "menu:bill", "id2"))
	}
	require.False(t, ask("u2", "menu:bill", "id3"), "another user")
	require.False(t, ask("u1", "menu:card", "id4"), "another action")
	require.False(t, ask("u1:menu", "bill", "id5"), "parts do not run into each other")
}

func TestRepeatWindowEnds(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	ctx := t.Context()
	_, _, err := s.Repeat(ctx, "acc", "u", "a", "id0", 200*time.Millisecond)
	require.NoError(t, err)
	begun := time.Now()
	require.Eventually(t, func() bool {
		again, _, err := s.Repeat(ctx, "acc", "u", "a", "id1", 200*time.Millisecond)
		require.NoError(t, err)
		return !again
	}, 5*time.Second, 5*time.Millisecond, "repeats do not prolong the window")
	require.Greater(t, time.Since(begun), 100*time.Millisecond)
}

func TestReleasedActionIsNoRepeat(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	ctx := t.Context()
	_, release, err := s.Repeat(ctx, "acc", "u", "a", "id0", time.Minute)
	require.NoError(t, err)
	_, foreign, err := s.Repeat(ctx, "acc", "u", "a", "id1", time.Minute)
	require.NoError(t, err)
	foreign(ctx) // a repeat holds nothing and removes nothing
	again, _, err := s.Repeat(ctx, "acc", "u", "a", "id2", time.Minute)
	require.NoError(t, err)
	require.True(t, again)
	release(ctx)
	release(ctx)
	again, _, err = s.Repeat(ctx, "acc", "u", "a", "id3", time.Minute)
	require.NoError(t, err)
	require.False(t, again)
}

func TestRepeatWithoutRedisIsWorked(t *testing.T) {
	m, err := redismem.Start("")
	require.NoError(t, err)
	s := dedupe.New(open(t, m.Addr()), patient())
	m.Close()
	again, release, err := s.Repeat(t.Context(), "acc", "u", "a", "id", time.Minute)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.False(t, again)
	release(t.Context())
	_, _, err = s.Repeat(t.Context(), "acc", "u", "a", "id", 0)
	require.Equal(t, fault.Internal, fault.KindOf(err))
}
