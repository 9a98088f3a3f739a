package receipts_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/kafka"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/receipts"
	"tidegate/receipts/store"
)

// node is another room on the same queue and database.
func (w *world) node() *world {
	w.Helper()
	n := *w
	n.reg = prometheus.NewRegistry()
	n.open()
	n.start()
	return &n
}

// renewed reads the pushes topic and gives the new ids of each old message, and
// how many records there were of new ones.
func (w *world) renewed(records int) (map[string]map[string]bool, int) {
	w.Helper()
	out, n := map[string]map[string]bool{}, 0
	born := map[string]int64{}
	for _, rec := range w.read(w.topics.Pushes("bank", wire.LaneRealtime), records) {
		p, err := wire.Decode[wire.Push](rec.Value, rec.Headers)
		require.NoError(w, err)
		if p.ResendOf == "" {
			continue
		}
		n++
		if out[p.ResendOf] == nil {
			out[p.ResendOf] = map[string]bool{}
		}
		out[p.ResendOf][p.ID] = true
		if first, again := born[p.ID]; again {
			require.Equal(w, first, p.AcceptedAt, "its birth says where its row is")
		}
		born[p.ID] = p.AcceptedAt
	}
	return out, n
}

func (w *world) job(request any) store.ResendJob {
	w.Helper()
	j, err := w.room.Store().ResendOf(w.Context(), fmt.Sprint(request))
	require.NoError(w, err)
	return j
}

// Two people at two nodes, who counted each for himself and both press twice, at
// once: every message goes out once.
func TestTwoPeopleOnTwoNodesSendOnce(t *testing.T) {
	each(t, func(w *world) {
		const n = 40
		w.dead(n)
		other := w.node()
		mine := w.counted("card", pick("states", []string{"dead"}), n)
		theirs := other.counted("card", pick("states", []string{"dead"}), n)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var answers []map[string]any
		for _, at := range []*world{w, other} {
			for _, text := range []string{mine, theirs} {
				for range 2 {
					wg.Go(func() {
						_, _, body := at.fetch("card", http.MethodPost, resendPath, map[string]any{"confirm": text})
						var a map[string]any
						if json.Unmarshal(body, &a) == nil {
							mu.Lock()
							defer mu.Unlock()
							answers = append(answers, a)
						}
					})
				}
			}
		}
		wg.Wait()
		require.Len(w, answers, 8)
		requests := map[string]store.ResendJob{}
		for _, a := range answers {
			require.Equal(w, true, a["finished"], "%v", a)
			requests[fmt.Sprint(a["request"])] = w.job(a["request"])
		}
		require.Len(w, requests, 2)
		sent := 0
		for _, j := range requests {
			sent += j.Sent
		}
		require.Equal(w, n, sent, "%v", requests)
		got, records := w.renewed(2 * n)
		require.Len(w, got, n)
		require.Equal(w, n, records)
	}, func(c *receipts.Config) { c.Resend.Rate = 5000 })
}

// A node dies between publishing a page and noting it: its row stays claimed,
// another node publishes the page again under the same ids and goes on.
func TestKilledResendIsTakenUp(t *testing.T) {
	each(t, func(w *world) {
		const n, page = 130, 100
		w.dead(n)
		text := w.counted("card", pick("states", []string{"dead"}), n)
		died := false
		w.gate.shut(func([]kafka.Record) error {
			if !died { // what a death leaves: published, not noted, claimed
				died = true
				_, err := w.db.Exec(w.Context(), "UPDATE resend_jobs SET claim = 'of the dead', claim_until = $1", w.clock.now().Add(30*time.Second).UnixMilli())
				return err
			}
			return nil
		})
		code, got := w.confirm("card", text)
		require.Equal(w, http.StatusAccepted, code, "%v", got)
		require.Equal(w, false, got["finished"])
		require.Equal(w, "0", fmt.Sprint(got["sent"]))
		w.stop()
		require.True(w, died)
		require.Len(w, w.job(got["request"]).Flight, page)

		next := w.node()
		w.clock.step(31 * time.Second)
		code, got = next.confirm("card", text)
		require.Equal(w, http.StatusAccepted, code)
		require.Equal(w, true, got["finished"], "%v", got)
		require.Equal(w, "130", fmt.Sprint(got["sent"]))
		ids, records := w.renewed(n + page + n)
		require.Len(w, ids, n)
		require.Equal(w, page+n, records, "the page of the dead node twice")
		for old, news := range ids {
			require.Len(w, news, 1, "%s under one new id", old)
		}
	}, func(c *receipts.Config) { c.Resend.Rate, c.Resend.Timeout = 5000, 2*time.Second })
}

// It keeps to its rate, by the row, so also over a restart; a person can look and
// stop it; nobody else's key sees it (S70).
func TestRateStatusAndCancel(t *testing.T) {
	each(t, func(w *world) {
		w.dead(8)
		text := w.counted("card", pick("states", []string{"dead"}), 8)
		for rate, field := range map[int]string{-1: "rate", 5001: "rate"} {
			code, problem := w.call("card", http.MethodPost, resendPath, map[string]any{"confirm": text, "rate": rate})
			require.Equal(w, http.StatusBadRequest, code)
			require.Equal(w, field, problem["field"])
		}
		code, got := w.call("card", http.MethodPost, resendPath, map[string]any{"confirm": text, "rate": 1})
		require.Equal(w, http.StatusAccepted, code, "%v", got)
		require.Equal(w, "running", got["state"])
		path := "/v1/resends/" + fmt.Sprint(got["request"])
		w.stop()
		j := w.job(got["request"])
		require.Positive(w, j.Sent)
		require.Less(w, j.Sent, 8)
		require.GreaterOrEqual(w, j.NextAt-j.BegunAt, int64(j.Sent)*1000, "a second for each")

		next := w.node()
		code, _ = next.call("till", http.MethodGet, path, nil)
		require.Equal(w, http.StatusNotFound, code, "another app's")
		code, _ = next.call("till", http.MethodPost, path+"/cancel", nil)
		require.Equal(w, http.StatusNotFound, code)
		code, got = next.call("card", http.MethodPost, path+"/cancel", nil)
		require.Equal(w, http.StatusOK, code, "%v", got)
		require.Equal(w, "cancelled", got["state"])
		w.clock.step(time.Minute)
		code, got = next.confirm("card", text)
		require.Equal(w, http.StatusAccepted, code)
		require.Equal(w, "cancelled", got["state"], "a click does not bring it back")
		_, list := next.call("card", http.MethodGet, "/v1/resends", nil)
		require.Len(w, list["resends"], 1)
		_, list = next.call("till", http.MethodGet, "/v1/resends", nil)
		require.Empty(w, list["resends"])
	}, func(c *receipts.Config) { c.Resend.Timeout = time.Second })
}

// Who blocks the account, has left it or refuses the template gets nothing; who
// came back does. The dry run says it before.
func TestWhoBlocksIsLeftOut(t *testing.T) {
	each(t, func(w *world) {
		ps := w.dead(6)
		at := w.clock.now().UnixMilli()
		later := func(k int64) func(*wire.Receipt) { return func(r *wire.Receipt) { r.At = at + k } }
		failed := func(n int, st wire.State, code int, k int64) {
			p := w.push(100 + n)
			p.OpenID = ps[n].OpenID
			w.outcome(p, st, func(r *wire.Receipt) { r.ErrCode = code }, later(k))
			w.message(p.ID, st)
		}
		failed(0, wire.RefusedByUser, 0, 10)
		failed(1, wire.Rejected, 43004, 10)
		failed(2, wire.Rejected, 43101, 10)
		did := func(n int, event string, k int64) {
			id, h := idOf(1000 + n*10 + int(k)/10)
			w.put(w.topics.Receipts(), &wire.Receipt{Source: wire.FromRobot, MessageKind: wire.KindCallback, ID: id, IdentityHash: h, Account: "bank",
				OpenID: ps[n].OpenID, State: wire.NotAnswered, Event: event, At: at + k})
			w.message(id, wire.NotAnswered)
		}
		did(3, "unsubscribe", 10)
		did(4, "unsubscribe", 10)
		did(4, "subscribe", 20)

		body := pick("states", []string{"dead"})
		body["dry_run"] = true
		code, got := w.call("card", http.MethodPost, resendPath, body)
		require.Equal(w, http.StatusOK, code, "%v", got)
		require.Equal(w, "2", fmt.Sprint(got["would_send"]))
		require.Equal(w, "map[blocked:4]", fmt.Sprint(got["would_skip"]))
		require.Zero(w, w.metric("tidegate_receipts_resent_total"))
		_, got = w.confirm("card", fmt.Sprint(got["confirm"]))
		require.Equal(w, "2", fmt.Sprint(got["sent"]), "%v", got)
		require.Equal(w, "4", fmt.Sprint(got["skipped"]))
		require.Contains(w, got["skipped_because"], "blocks")
		require.NotEmpty(w, w.message(ps[4].ID, wire.Dead)["resent_as"])
		require.NotEmpty(w, w.message(ps[5].ID, wire.Dead)["resent_as"])
	})
}

// Operations count, start, look and stop for every app, with a reason, and the
// audit has it; a selection may be capped.
func TestOperationsResendWithAudit(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	w.dead(5)
	steer := func(pattern, path string, body any) (int, map[string]any) {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		ops := telemetry.NewOps(prometheus.NewRegistry())
		for p, h := range w.room.Steer() {
			ops.HandleSteering(p, h)
		}
		for p, h := range w.room.Ops() {
			ops.Handle(p, h)
		}
		req := httptest.NewRequest(pattern, path, strings.NewReader(string(text)))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		req.Host = "127.0.0.1"
		ops.ServeHTTP(rec, req)
		var out map[string]any
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &out), rec.Body.String())
		return rec.Code, out
	}
	code, got := steer("POST", "/ops/v1/resends", pick("states", []string{"dead"}, "limit", 3, "app", "card", "lane", "realtime"))
	require.Equal(t, http.StatusOK, code, "%v", got)
	require.Equal(t, "3", fmt.Sprint(got["count"]))
	confirm := got["confirm"]
	code, got = steer("POST", "/ops/v1/resends", map[string]any{"confirm": confirm})
	require.Equal(t, http.StatusBadRequest, code)
	require.Equal(t, "reason", got["field"])
	code, got = steer("POST", "/ops/v1/resends", map[string]any{"confirm": confirm, "reason": "INC-7"})
	require.Equal(t, http.StatusOK, code, "%v", got)
	require.Equal(t, "3", fmt.Sprint(got["sent"]))
	code, got = steer("GET", "/ops/v1/resends/"+fmt.Sprint(got["request"]), nil)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "INC-7", got["reason"])
	entries, err := control.NewStore(w.db, nil).Log(t.Context(), control.LogQuery{Kind: "resend", Limit: 10})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "INC-7", entries[0].Reason)
	require.NotContains(t, string(entries[0].New), "oFollower")
	code, _ = steer("POST", "/ops/v1/resends/nothing/cancel", map[string]any{"reason": "x"})
	require.Equal(t, http.StatusNotFound, code)
}

// S26: keys that come twice, in other case or unknown, deep and huge bodies.
// S56: what looks like SQL is a value that nothing has.
// S70: a key in the URL is no key, and one without the scope may not.
func TestS26S56S70ResendRequests(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	w.key("reader", []string{api.MessagesRead}, "bank")
	send := func(app, path, body string) int {
		req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		if app != "" {
			req.Header.Set("Authorization", "Bearer "+w.keys[app])
		}
		rec := httptest.NewRecorder()
		w.room.Handler().ServeHTTP(rec, req)
		return rec.Code
	}
	for name, body := range map[string]string{
		"twice":    `{"confirm":"a","confirm":"b"}`,
		"case":     `{"Confirm":"a"}`,
		"unknown":  `{"confirm":"a","all":true}`,
		"deep":     `{"selection":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`,
		"overflow": `{"confirm":"a","rate":1e400}`,
		"second":   `{"confirm":"a"} {}`,
	} {
		require.Equal(t, http.StatusBadRequest, send("card", resendPath, body), name)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, send("card", resendPath, `{"confirm":"`+strings.Repeat("x", 1<<20)+`"}`))
	w.counted("card", pick("states", []string{"dead"}, "reference", "' OR 1=1 --", "template_id", "%"), 0)
	require.Equal(t, http.StatusUnauthorized, send("", resendPath+"?key="+w.keys["card"], `{}`))
	for _, path := range []string{resendPath, "/v1/resends/x/cancel"} {
		require.Equal(t, http.StatusForbidden, send("reader", path, `{}`))
	}
	_, err := w.book.Revoke(t.Context(), "card")
	require.NoError(t, err)
	w.clock.step(5 * time.Second)
	require.Equal(t, http.StatusUnauthorized, send("card", resendPath, `{}`), "revoked, within 5 s")
}
