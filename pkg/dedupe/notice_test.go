package dedupe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/fault"
	"tidegate/pkg/redis/redismem"
)

// One user is told once in a while; the delivery that was told hears the same
// again, whatever it would say now, and the others nothing.
func TestNoticeOncePerUser(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	ctx := t.Context()
	said, given, err := s.Noticed(ctx, "acc", "u1", "id1")
	require.NoError(t, err)
	require.False(t, given)
	require.Empty(t, said)

	for _, c := range []struct {
		openid, identity, note, said string
		given                        bool
	}{
		{"u1", "id1", "120 40", "120 40", true},
		{"u1", "id1", "90 30", "120 40", true},
		{"u1", "id2", "90 30", "", false},
		{"u2", "id3", "90 30", "90 30", true},
	} {
		said, given, err := s.Notice(ctx, "acc", c.openid, c.identity, c.note, time.Minute)
		require.NoError(t, err)
		require.Equal(t, c.given, given, "%v", c)
		if given {
			require.Equal(t, c.said, said)
		}
	}
	said, given, err = s.Noticed(ctx, "acc", "u1", "id1")
	require.NoError(t, err)
	require.True(t, given)
	require.Equal(t, "120 40", said)
	_, given, err = s.Noticed(ctx, "acc", "u1", "id2")
	require.NoError(t, err)
	require.False(t, given)
	_, given, err = s.Noticed(ctx, "other", "u1", "id1")
	require.NoError(t, err)
	require.False(t, given, "an account is not another")
}

func TestNoticeEnds(t *testing.T) {
	s := dedupe.New(open(t, engine(t)), patient())
	_, given, err := s.Notice(t.Context(), "acc", "u", "id1", "1 10", 200*time.Millisecond)
	require.NoError(t, err)
	require.True(t, given)
	require.Eventually(t, func() bool {
		_, given, err := s.Notice(t.Context(), "acc", "u", "id2", "1 10", time.Minute)
		require.NoError(t, err)
		return given
	}, 5*time.Second, 5*time.Millisecond)
}

// Without Redis nothing is said, and soon: after a few tries it is not even
// asked.
func TestNoticeWithoutRedis(t *testing.T) {
	m, err := redismem.Start("127.0.0.1:0")
	require.NoError(t, err)
	s := dedupe.New(open(t, m.Addr()), dedupe.DefaultOptions())
	m.Close()
	begun := time.Now()
	for range 50 {
		_, given, err := s.Notice(t.Context(), "acc", "u", "id1", "1 10", time.Minute)
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
		require.False(t, given)
		_, given, err = s.Noticed(t.Context(), "acc", "u", "id1")
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
		require.False(t, given)
	}
	require.Less(t, time.Since(begun), 2*time.Second, "a few budgets of 100 ms, not a hundred")
	_, _, err = s.Notice(t.Context(), "acc", "u", "id1", "1 10", 0)
	require.Equal(t, fault.Internal, fault.KindOf(err))
}
