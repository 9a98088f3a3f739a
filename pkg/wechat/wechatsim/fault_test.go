package wechatsim

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// overSockets makes one custom send through a real connection.
func overSockets(ctx context.Context, s *Sim, token, openid string) (int, string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+PathCustomSend+"?access_token="+token,
		strings.NewReader(textTo(openid, "hello")))
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func TestAPIFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault   Fault
		check   func(t *testing.T, status int, body string, err error)
		applied bool
	}{
		"errcode": {Fault{Do: FaultErrcode, Errcode: -1}, func(t *testing.T, status int, body string, err error) {
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			require.Contains(t, body, `{"errcode":-1,"errmsg":"system error rid: `)
		}, false},
		"errcode of a lie": {Fault{Do: FaultErrcode, Errcode: -1, Applied: true}, func(t *testing.T, _ int, body string, _ error) {
			require.Contains(t, body, `"errcode":-1`)
		}, true},
		"reset before": {Fault{Do: FaultReset}, func(t *testing.T, _ int, _ string, err error) { require.Error(t, err) }, false},
		"reset after":  {Fault{Do: FaultReset, Applied: true}, func(t *testing.T, _ int, _ string, err error) { require.Error(t, err) }, true},
		"truncate":     {Fault{Do: FaultTruncate, Applied: true}, func(t *testing.T, _ int, _ string, err error) { require.Error(t, err) }, true},
		"html": {Fault{Do: FaultHTML}, func(t *testing.T, status int, body string, err error) {
			require.NoError(t, err)
			require.Equal(t, http.StatusBadGateway, status)
			require.Contains(t, body, "<html>")
		}, false},
		"garbage": {Fault{Do: FaultGarbage}, func(t *testing.T, status int, body string, _ error) {
			require.Equal(t, http.StatusOK, status)
			require.NotContains(t, body, "{")
		}, false},
		"hang": {Fault{Do: FaultHang, Applied: true}, func(t *testing.T, _ int, _ string, err error) {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}, true},
		"slow": {Fault{Do: FaultSlow, DelayMS: 20}, func(t *testing.T, status int, body string, err error) {
			require.NoError(t, err)
			require.JSONEq(t, `{"errcode":0,"errmsg":"ok"}`, body)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, testConfig(ModePlain), nil)
			user, token := anyone(t, s), stable(t, s, false).Token
			userActs(s, Text(user, "x"))
			c.fault.API = PathCustomSend
			require.NoError(t, s.SetFaults(c.fault))
			limit := 10 * time.Second
			if c.fault.Do == FaultHang {
				limit = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			status, body, err := overSockets(ctx, s, token, user)
			c.check(t, status, body, err)
			require.Equal(t, 1, s.Faults()[0].Hits)
			arrivals, _ := s.Journal().Read(0, 100, func(e *Entry) bool { return e.What == PathCustomSend })
			require.Len(t, arrivals, 1)
			require.Equal(t, c.fault.Do, arrivals[0].Fault)
			require.Equal(t, c.applied, arrivals[0].Applied)
			require.Equal(t, user, arrivals[0].OpenID)
			require.Equal(t, "hello", arrivals[0].Text)
		})
	}
}

func TestFaultsHaveRateStartAndEnd(t *testing.T) {
	s := quietSim(t, nil)
	token := stable(t, s, false).Token
	hits := func(n int) int {
		count := 0
		for range n {
			if works(t, s, token) == 45011 {
				count++
			}
		}
		return count
	}
	require.NoError(t, s.SetFaults(Fault{Do: FaultErrcode, Errcode: 45011, After: 2, Count: 3}))
	require.Zero(t, hits(2))
	require.Equal(t, 3, hits(10))
	require.NoError(t, s.SetFaults(Fault{Do: FaultErrcode, Errcode: 45011, Rate: 0.3}))
	require.InDelta(t, 300, hits(1000), 60)
	require.NoError(t, s.SetFaults(Fault{Do: FaultErrcode, Errcode: 45011, API: PathCustomSend}))
	require.Zero(t, hits(3))
	require.NoError(t, s.SetFaults(Fault{Do: FaultErrcode, Errcode: 45011, Account: testGhID}))
	require.Equal(t, 3, hits(3))
	require.NoError(t, s.SetFaults())
	require.Zero(t, hits(3))
}

func TestArrivalIsInTheJournalBeforeTheHookAndTheAnswer(t *testing.T) {
	var s *Sim
	answered := false
	seen := make(chan Entry, 10)
	s = newSim(t, testConfig(ModePlain), nil, WithArrivalHook(func(e Entry) {
		if e.What != PathCustomSend {
			return
		}
		if answered {
			t.Error("the hook ran after the answer")
		}
		found, _ := s.Journal().Read(0, 100, func(x *Entry) bool { return x.Seq == e.Seq })
		if len(found) != 1 {
			t.Error("the arrival is not in the journal yet")
		}
		seen <- e
	}))
	user, token := anyone(t, s), stable(t, s, false).Token
	userActs(s, Text(user, "x"))
	require.Zero(t, post(t, s, PathCustomSend, token, textTo(user, "x")).Errcode)
	answered = true
	require.True(t, (<-seen).Applied)
}

func TestDoubledReplyThroughAnAmbiguousResetIsSeen(t *testing.T) {
	b := newBot(t, ModePlain)
	s := newSim(t, testConfig(ModePlain), b)
	user, token := anyone(t, s), stable(t, s, false).Token
	mark := s.Mark()
	stim := Text(user, mark)
	stim.Token, stim.Wants = mark, 1
	_, err := s.Act(t.Context(), "", stim)
	require.NoError(t, err)
	require.NoError(t, s.SetFaults(Fault{Do: FaultErrcode, Errcode: -1, Applied: true, Count: 1}))
	require.Equal(t, -1, post(t, s, PathCustomSend, token, textTo(user, mark)).Errcode)
	require.True(t, s.Verdict(0).OK)
	require.Zero(t, post(t, s, PathCustomSend, token, textTo(user, mark)).Errcode)
	v := s.Verdict(0)
	require.EqualValues(t, 1, v.Replies.Doubled)
	require.EqualValues(t, 1, v.API[PathCustomSend].Faults)
	require.EqualValues(t, 1, v.API[PathCustomSend].Errors[-1])
}
