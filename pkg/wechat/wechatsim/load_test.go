package wechatsim

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func slowly(d time.Duration) func(http.ResponseWriter, received) {
	return func(w http.ResponseWriter, _ received) {
		passes(d)
		_, _ = io.WriteString(w, "success")
	}
}

func TestClosedLoopWaitsForEachUsersAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := bubbleSim(t, testConfig(ModePlain), slowly(100*time.Millisecond))
		report, err := s.Load(t.Context(), LoadSpec{Count: 50, Wants: -1})
		require.NoError(t, err)
		require.Equal(t, time.Second, report.Elapsed, "5 users, 100 ms each, 50 acts")
		last := map[string]int64{}
		for _, e := range deliveries(s) {
			require.GreaterOrEqual(t, e.Sent, last[e.OpenID])
			last[e.OpenID] = e.Answered
		}
		require.Len(t, last, 5)
		require.True(t, s.Verdict(0).OK)
	})
}

func TestOpenLoopKeepsItsRateAndCountsWhatItCannotOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(ModePlain)
		cfg.MaxInFlight = 10
		s, b := bubbleSim(t, cfg, slowly(time.Second))
		report, err := s.Load(t.Context(), LoadSpec{For: 10 * time.Second, Rate: 20, Loop: LoopOpen})
		require.NoError(t, err)
		require.EqualValues(t, 200, report.Offered+report.Skipped)
		require.EqualValues(t, 100, report.Offered)
		require.Len(t, b.received(), 100)
	})
}

func TestImpatientUsersPressAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := bubbleSim(t, testConfig(ModePlain), nil)
		report, err := s.Load(t.Context(), LoadSpec{Count: 20, Mix: Mix{Menu: 1}, RepeatShare: 1, Wants: 1})
		require.NoError(t, err)
		require.EqualValues(t, 20, report.UserRepeats)
		require.EqualValues(t, 40, report.Acked)
		byKey := map[string][]received{}
		for _, r := range b.received() {
			byKey[r.fields["EventKey"]] = append(byKey[r.fields["EventKey"]], r)
		}
		require.Len(t, byKey, 20)
		for _, twins := range byKey {
			require.Len(t, twins, 2)
			require.NotEqual(t, twins[0].fields["CreateTime"], twins[1].fields["CreateTime"], "another identity")
		}
		v := s.Verdict(0)
		require.EqualValues(t, 20, v.Replies.Expected)
		require.EqualValues(t, 20, v.Callbacks.UserRepeats)
	})
}

func TestSharesOfRepeatedDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := bubbleSim(t, testConfig(ModeSafe), nil)
		_, err := s.Load(t.Context(), LoadSpec{Count: 10, ParallelShare: 1})
		require.NoError(t, err)
		require.EqualValues(t, 20, s.Verdict(0).Callbacks.Deliveries)
		_, err = s.Load(t.Context(), LoadSpec{Count: 10, LoseAckShare: 1})
		require.NoError(t, err)
		v := s.Verdict(0)
		require.EqualValues(t, 50, v.Callbacks.Deliveries)
		require.EqualValues(t, 20, v.Callbacks.Acked)
		require.EqualValues(t, 30, v.Callbacks.Repeats)
	})
}

func TestLoadEndsWithItsContextAndSettlesWhatItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := bubbleSim(t, testConfig(ModePlain), slowly(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		report, err := s.Load(ctx, LoadSpec{Count: 1000})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 10, report.Offered)
		require.EqualValues(t, 10, report.Acked)
	})
}

func TestNewSubscribersAreOtherUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := bubbleSim(t, testConfig(ModePlain), nil)
		_, err := s.Load(t.Context(), LoadSpec{Count: 10, Mix: Mix{Subscribe: 1}})
		require.NoError(t, err)
		users := map[string]bool{}
		for _, r := range b.received() {
			users[r.fields["FromUserName"]] = true
			require.Contains(t, r.fields["EventKey"], "qrscene_sim_"+markPrefix)
		}
		require.Len(t, users, 10)
		ids, err := s.Followers("", 0)
		require.NoError(t, err)
		require.Len(t, ids, 15)
	})
}

func TestLoadStopsWhenTheJudgeIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(ModePlain)
		cfg.Journal.Stimuli = 10
		s, _ := bubbleSim(t, cfg, nil)
		_, err := s.Load(t.Context(), LoadSpec{Count: 1000})
		require.ErrorIs(t, err, errFull)
		require.True(t, s.Verdict(time.Hour).Complete)
	})
}
