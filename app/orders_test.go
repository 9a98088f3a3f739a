package app

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/control"
	"tidegate/sender/hold"
)

// counter stands for a sender that holds letters.
type counter struct{ n int64 }

func (c counter) CountHeld(context.Context, control.Order) (int64, error) { return c.n, nil }
func (c counter) Held(context.Context) ([]hold.Group, error) {
	return []hold.Group{{Account: "card", Lane: "bulk", Reason: "paused", Cause: "night", Rows: c.n}}, nil
}

func (d *desk) orders(c OrderChange) (string, error) {
	return d.cli(func(o LimitsOptions) error { return OrdersSet(d.t.Context(), o, c) })
}

func (d *desk) speak(method, path, key, body string) (int, map[string]any) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	require.NoError(d.t, err)
	req.Header.Set("Authorization", "Bearer "+d.keys[key])
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(d.t, err)
	defer func() { _ = resp.Body.Close() }()
	var v map[string]any
	require.NoError(d.t, json.NewDecoder(resp.Body).Decode(&v))
	return resp.StatusCode, v
}

// G23, D9 at the operator's desk: orders are given on one node, at work on the
// others, counted first, listed, taken back and audited.
func TestOrdersOfTheDesk(t *testing.T) {
	t.Parallel()
	site := shared(t)
	a, b := newDesk(t, "a", site), newDesk(t, "b", site)
	a.open()
	b.open()
	card := control.Message{Account: "card", Lane: "bulk", AcceptedAt: time.Now().Add(-time.Hour)}

	text, err := a.orders(OrderChange{Kind: KindPause, Name: "night", Order: Conditions{Account: "card"}, Reason: "INC-1", Wait: 20 * time.Second})
	require.NoError(t, err)
	require.Contains(t, text, "pause night: in force (version 1)")
	require.Contains(t, text, "at work on 2 of 2 nodes")
	f, paused := b.panel.Orders().Paused(card)
	require.True(t, paused)
	require.Equal(t, "anna", f.By)

	_, err = a.orders(OrderChange{Kind: KindPause, Name: "typo", Order: Conditions{Account: "crad"}, Reason: "x"})
	require.ErrorContains(t, err, "no live node has the account")
	_, err = a.orders(OrderChange{Kind: KindPause, Name: "none", Reason: "x"})
	require.ErrorContains(t, err, "for everything set all")

	cancel := OrderChange{Kind: KindCancel, Name: "march", Order: Conditions{Account: "card"}, Reason: "INC-2"}
	text, err = a.orders(cancel)
	require.NoError(t, err)
	require.Contains(t, text, "nothing was changed")
	_, cancelled := a.panel.Orders().Cancelled(card)
	require.False(t, cancelled)
	cancel.Yes = true
	text, err = a.orders(cancel)
	require.NoError(t, err)
	require.Contains(t, text, "version 2")

	var out bytes.Buffer
	require.NoError(t, OrdersShow(t.Context(), LimitsOptions{Ops: b.url, Key: b.keys["read"], Out: &out}, KindPause))
	require.Contains(t, out.String(), "account card, pushes")

	text, err = a.orders(OrderChange{Kind: KindPause, Name: "night", Back: true, Reason: "over", Wait: 20 * time.Second})
	require.NoError(t, err)
	require.Contains(t, text, "taken back (version 3)")
	_, paused = b.panel.Orders().Paused(card)
	require.False(t, paused)

	out.Reset()
	require.NoError(t, LimitsLog(t.Context(), AuditOptions{LimitsOptions: LimitsOptions{Ops: a.url, Key: a.keys["read"], Out: &out}, Limit: 10, Verify: true}))
	require.Contains(t, out.String(), "the audit is whole: 3 entries")
	require.Contains(t, out.String(), "cancel")
}

// The counts come from a sender, and who may not steer gives no orders.
func TestOrdersOverHTTP(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "a", shared(t))
	d.open()
	code, v := d.speak("GET", "/ops/v1/held", "read", "")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, v["detail"], "ask a sender")
	code, v = d.speak("PUT", "/ops/v1/cancels/c?dry_run=true", "steer", `{"all":true,"reason":"x"}`)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, v["held_unknown"], "no sender")
	*d.held = counter{7}
	code, v = d.speak("PUT", "/ops/v1/cancels/c?dry_run=true", "steer", `{"all":true,"reason":"x"}`)
	require.Equal(t, http.StatusOK, code)
	require.EqualValues(t, 7, v["held"])
	require.Equal(t, true, v["dry_run"])
	code, v = d.speak("GET", "/ops/v1/held", "read", "")
	require.Equal(t, http.StatusOK, code)
	require.Len(t, v["groups"], 1)

	for _, bad := range []struct{ method, path, key, body string }{
		{"PUT", "/ops/v1/pauses/p", "steer", `{}`},
		{"PUT", "/ops/v1/pauses/p", "steer", `{"all":true}`},
		{"PUT", "/ops/v1/pauses/p", "steer", `{"all":true,"reason":"x","weekday":"monday"}`},
		{"PUT", "/ops/v1/pauses/p", "steer", `{"all":true,"reason":"x","expires_in":"soon"}`},
		{"PUT", "/ops/v1/pauses/p?dry_run=maybe", "steer", `{"all":true,"reason":"x"}`},
		{"PUT", "/ops/v1/pauses/a%20b", "steer", `{"all":true,"reason":"x"}`},
		{"DELETE", "/ops/v1/pauses/p", "steer", ""},
		{"GET", "/ops/v1/pauses?all=1", "read", ""},
	} {
		code, v := d.speak(bad.method, bad.path, bad.key, bad.body)
		require.GreaterOrEqual(t, code, 400, "%+v", bad)
		require.Less(t, code, 500, "%+v %v", bad, v)
		require.NotEmpty(t, v["detail"])
	}
	code, _ = d.speak("PUT", "/ops/v1/pauses/p", "read", `{"all":true,"reason":"x"}`)
	require.Equal(t, http.StatusForbidden, code)
	code, _ = d.speak("PUT", "/ops/v1/pauses/p", "steer", `{"all":true,"replies":true,"reason":"x","accepted_before":"2026-03-01T09:00:00+08:00"}`)
	require.Equal(t, http.StatusOK, code)
	require.Eventually(t, func() bool { // the node reads what it wrote
		code, v = d.speak("GET", "/ops/v1/pauses", "read", "")
		require.Equal(t, http.StatusOK, code)
		orders, _ := v["orders"].([]any)
		return len(orders) == 1
	}, 20*time.Second, 5*time.Millisecond)
	require.Contains(t, v["orders"].([]any)[0].(map[string]any)["order"], "accepted_before")
}
