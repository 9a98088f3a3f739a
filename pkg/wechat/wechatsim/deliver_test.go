package wechatsim

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimeoutsAreRepeatedEveryFiveSeconds(t *testing.T) {
	for _, total := range []int{3, 4} {
		t.Run(fmt.Sprint(total), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(ModeSafe)
				cfg.Deliveries = total
				s, b := bubbleSim(t, cfg, hang)
				begun := time.Now()
				d, err := s.Act(t.Context(), "", Text(anyone(t, s), "x"))
				require.NoError(t, err)
				require.False(t, d.Acked)
				require.Equal(t, total, d.Tries)
				require.Equal(t, time.Duration(total)*5*time.Second, time.Since(begun))
				all := deliveries(s)
				require.Len(t, all, total)
				for i, e := range all {
					require.Equal(t, JudgedTimeout, e.Judged)
					require.Equal(t, int64(i)*int64(5*time.Second), e.Sent-all[0].Sent)
				}
				requireFreshEnvelopes(t, b.received())
				v := s.Verdict(0)
				require.EqualValues(t, 1, v.Callbacks.Refused)
				require.EqualValues(t, total-1, v.Callbacks.Repeats)
			})
		})
	}
}

// requireFreshEnvelopes: each delivery is signed and encrypted anew around the
// same identity.
func requireFreshEnvelopes(t *testing.T, got []received) {
	t.Helper()
	nonces, signatures, bodies := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range got {
		nonces[r.query["nonce"]] = true
		signatures[r.query["msg_signature"]] = true
		bodies[string(r.body)] = true
		for _, name := range []string{"MsgId", "FromUserName", "CreateTime", "Content"} {
			require.Equal(t, got[0].fields[name], r.fields[name])
		}
		require.Equal(t, r.fields["FromUserName"], r.query["openid"])
	}
	require.Len(t, nonces, len(got))
	require.Len(t, signatures, len(got))
	require.Len(t, bodies, len(got))
}

func TestBrokenConnectionIsRepeatedAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s, _ := bubbleSim(t, testConfig(ModeSafe), func(w http.ResponseWriter, _ received) {
			if n++; n == 1 {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, "success")
		})
		begun := time.Now()
		d, err := s.Act(t.Context(), "", Text(anyone(t, s), "x"))
		require.NoError(t, err)
		require.True(t, d.Acked)
		require.Equal(t, 2, d.Tries)
		require.Equal(t, 5*time.Second, time.Since(begun))
	})
}

func TestBadAnswerIsRepeatedAtOnceOrNot(t *testing.T) {
	for _, retry := range []bool{true, false} {
		t.Run(fmt.Sprint(retry), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(ModePlain)
				cfg.RetryOnBad = retry
				s, b := bubbleSim(t, cfg, func(w http.ResponseWriter, _ received) { w.WriteHeader(http.StatusServiceUnavailable) })
				begun := time.Now()
				d, err := s.Act(t.Context(), "", Text(anyone(t, s), "x"))
				require.NoError(t, err)
				require.False(t, d.Acked)
				require.Zero(t, time.Since(begun))
				want := 1
				if retry {
					want = 3
				}
				require.Len(t, b.received(), want)
				require.EqualValues(t, want, s.Verdict(0).Callbacks.Answers[JudgedStatus])
			})
		})
	}
}

func TestLostAckIsRepeatedThoughTheServerAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := bubbleSim(t, testConfig(ModeSafe), nil)
		require.NoError(t, s.SetFaults(Fault{Do: FaultLoseAck}))
		d, err := s.Act(t.Context(), "", Text(anyone(t, s), "x"))
		require.NoError(t, err)
		require.True(t, d.Acked)
		require.Len(t, b.received(), 3)
		v := s.Verdict(0)
		require.EqualValues(t, 1, v.Callbacks.Acked)
		require.EqualValues(t, 2, v.Callbacks.RepeatsAfterAck)
		require.Equal(t, 1, s.Faults()[0].Hits)
	})
}

func TestParallelDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := bubbleSim(t, testConfig(ModeSafe), func(w http.ResponseWriter, _ received) {
			passes(time.Second) // all copies are under way at the same time
			_, _ = io.WriteString(w, "success")
		})
		require.NoError(t, s.SetFaults(Fault{Do: FaultParallel, Copies: 4}))
		begun := time.Now()
		_, err := s.Act(t.Context(), "", Text(anyone(t, s), "x"))
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(begun))
		require.Len(t, b.received(), 4)
		requireFreshEnvelopes(t, b.received())
		require.EqualValues(t, 1, s.Verdict(0).Callbacks.Acked)
	})
}

func TestMarkFailPausesForAMinute(t *testing.T) {
	for _, later := range []bool{false, true} {
		t.Run(fmt.Sprintf("send later %v", later), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(ModePlain)
				cfg.MarkFail.Failures, cfg.MarkFail.SendLater = 3, later
				healthy := false
				s, b := bubbleSim(t, cfg, func(w http.ResponseWriter, _ received) {
					if !healthy {
						w.WriteHeader(http.StatusInternalServerError)
					}
				})
				user := anyone(t, s)
				_, err := s.Act(t.Context(), "", Text(user, "three failures"))
				require.NoError(t, err)
				require.Len(t, b.received(), 3)
				healthy = true
				begun := time.Now()
				d, err := s.Act(t.Context(), "", Text(user, "while paused"))
				require.NoError(t, err)
				require.Equal(t, later, d.Acked)
				if later {
					require.GreaterOrEqual(t, time.Since(begun), time.Minute)
					return
				}
				require.Zero(t, time.Since(begun))
				require.EqualValues(t, 1, s.Verdict(0).Callbacks.Skipped)
				passes(time.Minute)
				d, err = s.Act(t.Context(), "", Text(user, "after the pause"))
				require.NoError(t, err)
				require.True(t, d.Acked)
			})
		})
	}
}

func TestClosingAbandonsDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := bubbleSim(t, testConfig(ModePlain), hang)
		user := anyone(t, s)
		failed := make(chan error, 1)
		go func() {
			_, err := s.Act(t.Context(), "", Text(user, "x"))
			failed <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-failed, errClosed)
		v := s.Verdict(0)
		require.Zero(t, v.Callbacks.Refused)
		require.EqualValues(t, 1, v.Callbacks.InFlight)
	})
}

func TestVerifyURL(t *testing.T) {
	b := newBot(t, ModeSafe)
	s := newSim(t, testConfig(ModeSafe), b)
	require.NoError(t, s.VerifyURL(t.Context(), ""))
	quoting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%q", r.URL.Query().Get("echostr"))
	})
	s.client.Transport = inProcess{quoting}
	require.ErrorContains(t, s.SetCallbackURL(t.Context(), "", "http://quoting.invalid/", true), "exactly the echostr")
	target, _ := s.accounts[0].target()
	require.Equal(t, b.server.URL+"/wx", target)
}
