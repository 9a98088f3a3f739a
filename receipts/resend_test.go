package receipts_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/receipts"
)

const resendPath = "/v1/messages:resend"

func pick(kv ...any) map[string]any {
	s := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		s[kv[i].(string)] = kv[i+1]
	}
	return map[string]any{"selection": s}
}

// dead makes n pushes that failed.
func (w *world) dead(n int) []*wire.Push {
	var ps []*wire.Push
	for i := range n {
		p := w.push(i)
		p.ExpiresAt = p.AcceptedAt + 3_600_000
		w.queue(p)
		w.outcome(p, wire.Dead)
		ps = append(ps, p)
	}
	w.settled(n, wire.Dead)
	w.waitForLetters(ps)
	return ps
}

// waitForLetters waits until the pushes topic has told the content.
func (w *world) waitForLetters(ps []*wire.Push) {
	w.Helper()
	for _, p := range ps {
		require.Eventually(w, func() bool {
			_, err := w.room.Store().Letter(w.Context(), p.ID, 0)
			return err == nil
		}, 20*time.Second, 10*time.Millisecond)
	}
}

func (w *world) counted(app string, selection map[string]any, n int) string {
	w.Helper()
	code, got := w.call(app, http.MethodPost, resendPath, selection)
	require.Equal(w, http.StatusOK, code, "%v", got)
	require.Equal(w, fmt.Sprint(n), fmt.Sprint(got["count"]))
	text, _ := got["confirm"].(string)
	return text
}

func (w *world) confirm(app, text string) (int, map[string]any) {
	w.Helper()
	return w.call(app, http.MethodPost, resendPath, map[string]any{"confirm": text})
}

func TestResendCountsFirstAndSendsOnce(t *testing.T) {
	each(t, func(w *world) {
		ps := w.dead(5)
		delivered := w.push(10)
		w.queue(delivered)
		w.outcome(delivered, wire.Delivered)
		w.message(delivered.ID, wire.Delivered)

		text := w.counted("card", pick("states", []string{"dead"}), 5)
		code, got := w.confirm("card", text)
		require.Equal(w, http.StatusAccepted, code, "%v", got)
		require.Equal(w, "5", fmt.Sprint(got["sent"]))
		require.Equal(w, true, got["finished"])
		for range 3 { // clicked again and again
			code, again := w.confirm("card", text)
			require.Equal(w, http.StatusAccepted, code)
			require.Equal(w, got["sent"], again["sent"])
		}
		w.settled(5, wire.Queued) // the new ones

		records := w.read(w.topics.Pushes("bank", wire.LaneRealtime), 6+5)
		for _, rec := range records[6:] {
			require.NotEmpty(w, rec.Key)
		}
		news := map[string]*wire.Push{}
		for _, rec := range records {
			p, err := wire.Decode[wire.Push](rec.Value, rec.Headers)
			require.NoError(w, err)
			require.Equal(w, p.OpenID, string(rec.Key))
			if p.ResendOf != "" {
				news[p.ResendOf] = p
			}
		}
		require.Len(w, news, 5)
		for _, old := range ps {
			p := news[old.ID]
			require.NotNil(w, p)
			require.NotEqual(w, old.ID, p.ID)
			require.Equal(w, old.Data, p.Data)
			require.Equal(w, old.TemplateID, p.TemplateID)
			require.Equal(w, int64(3_600_000), p.ExpiresAt-p.AcceptedAt, "the same time to live, from now on")
			require.Equal(w, p.ID, w.message(old.ID, wire.Dead)["resent_as"], "the old one names the new")
			require.Equal(w, old.ID, w.message(p.ID, wire.Queued)["resend_of"], "the new one names the old")
		}
		require.Empty(w, w.counted("card", pick("states", []string{"dead"}), 0), "they are not offered again")
		w.counted("card", pick("states", []string{"dead"}, "again", true), 5)
	})
}

// The same confirmation sent from many sides at once.
func TestDoubleClicksSendOnce(t *testing.T) {
	each(t, func(w *world) {
		w.dead(20)
		text := w.counted("card", pick("states", []string{"dead"}), 20)
		var wg sync.WaitGroup
		codes := make(chan int, 10)
		for range 10 {
			wg.Go(func() {
				code, _, _ := w.fetch("card", http.MethodPost, resendPath, map[string]any{"confirm": text})
				codes <- code
			})
		}
		wg.Wait()
		for range 10 {
			require.Contains(w, []int{http.StatusAccepted, http.StatusConflict}, <-codes)
		}
		code, got := w.confirm("card", text)
		require.Equal(w, http.StatusAccepted, code)
		require.Equal(w, "20", fmt.Sprint(got["sent"]))
		w.settled(20, wire.Queued)
		w.read(w.topics.Pushes("bank", wire.LaneRealtime), 40)
	})
}

func TestConfirmationIsBoundToWhatWasCounted(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	w.dead(2)
	text := w.counted("card", pick("states", []string{"dead"}), 2)

	code, problem := w.confirm("ops", text)
	require.Equal(t, http.StatusForbidden, code, "another app: %v", problem)
	raw := []byte(text)
	raw[len(raw)/2] ^= 1
	code, problem = w.confirm("card", string(raw))
	require.Equal(t, http.StatusBadRequest, code)
	require.Equal(t, "confirm", problem["field"])

	// More failed since, of messages from before the count.
	other := w.counted("card", pick("states", []string{"dead", "rejected"}), 2)
	late := w.push(50)
	w.outcome(late, wire.Rejected, func(r *wire.Receipt) { r.At -= 60_000 })
	w.settled(1, wire.Rejected)
	code, problem = w.confirm("card", other)
	require.Equal(t, http.StatusConflict, code)
	require.Contains(t, problem["detail"], "count again")

	w.clock.step(w.cfg.Resend.ConfirmWithin + time.Second)
	code, problem = w.confirm("card", text)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, problem["detail"], "too old")
	w.read(w.topics.Pushes("bank", wire.LaneRealtime), 2) // the old ones only
}

func TestSelectionsAreChecked(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t), func(c *receipts.Config) { c.Resend.Max = 3 })
	ps := w.dead(4)
	many := make([]string, 201)
	for i := range many {
		many[i] = ps[0].ID
	}
	for name, c := range map[string]struct {
		body  map[string]any
		field string
	}{
		"neither":        {map[string]any{}, "selection"},
		"both":           {map[string]any{"selection": map[string]any{}, "confirm": "x"}, "selection"},
		"no states":      {pick("account", "bank"), "selection.states"},
		"unknown state":  {pick("states", []string{"lost"}), "selection.states"},
		"delivered":      {pick("states", []string{"delivered"}), "selection.states"},
		"queued":         {pick("states", []string{"dead", "queued"}), "selection.states"},
		"bad id":         {pick("states", []string{"dead"}, "ids", []string{"1"}), "selection.ids"},
		"many ids":       {pick("states", []string{"dead"}, "ids", many), "selection.ids"},
		"bad time":       {pick("states", []string{"dead"}, "from", "now"), "selection.from"},
		"too many":       {pick("states", []string{"dead"}), "selection"},
		"unknown field":  {pick("states", []string{"dead"}, "state", "dead"), "selection.state"},
		"case of a name": {pick("States", []string{"dead"}), "selection.States"},
	} {
		code, problem := w.call("card", http.MethodPost, resendPath, c.body)
		require.Equal(t, http.StatusBadRequest, code, name)
		require.Equal(t, c.field, problem["field"], "%s: %v", name, problem)
	}
	code, _ := w.call("card", http.MethodPost, resendPath, pick("states", []string{"dead"}, "account", "nowhere"))
	require.Equal(t, http.StatusForbidden, code)

	// To exactly these.
	text := w.counted("card", pick("states", []string{"dead"}, "ids", []string{ps[1].ID, ps[3].ID}), 2)
	_, got := w.confirm("card", text)
	require.Equal(t, "2", fmt.Sprint(got["sent"]))
	require.NotEmpty(t, w.message(ps[1].ID, wire.Dead)["resent_as"])
	require.Empty(t, w.message(ps[0].ID, wire.Dead)["resent_as"])
}

// A message whose content never arrived, and one of an account that is gone,
// are skipped and said so.
func TestWhatCannotBeResentIsSkipped(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	w.outcome(w.push(1), wire.Dead)
	w.settled(1, wire.Dead)
	_, got := w.confirm("card", w.counted("card", pick("states", []string{"dead"}), 1))
	require.Equal(t, "1", fmt.Sprint(got["skipped"]))
	require.Contains(t, got["skipped_because"], "content")

	p := w.push(2)
	w.queue(p)
	w.outcome(p, wire.Rejected)
	w.message(p.ID, wire.Rejected)
	w.waitForLetters([]*wire.Push{p})
	require.NoError(t, w.room.SetAccounts([]string{"shop"}))
	_, got = w.confirm("card", w.counted("card", pick("states", []string{"rejected"}), 1))
	require.Equal(t, "1", fmt.Sprint(got["skipped"]))
	require.Contains(t, got["skipped_because"], "not configured")
}
