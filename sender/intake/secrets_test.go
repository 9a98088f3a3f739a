package intake_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/sender/intake"
)

// watched is a desk whose whole output is kept.
func watched(t *testing.T) (*desk, *observer.ObservedLogs, *prometheus.Registry) {
	core, logs := observer.New(zap.DebugLevel)
	reg := prometheus.NewRegistry()
	d := openDesk(t, sqldbtest.OpenSQLite(t), func(d *intake.Deps) { d.Log, d.Reg = zap.New(core), reg })
	return d, logs, reg
}

// output is everything that the intake has written for operators.
func output(t *testing.T, logs *observer.ObservedLogs, reg *prometheus.Registry) string {
	var b strings.Builder
	for _, e := range logs.All() {
		fmt.Fprintln(&b, e.Message, e.ContextMap())
	}
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range all {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// S50 and S51: what a message says, to whom, and the key that asked for it are in no
// log and no metric, whatever becomes of the request.
func TestS50S51NothingPersonalAndNoKeyIsWritten(t *testing.T) {
	d, logs, reg := watched(t)
	canaries := []string{"13800138000", "11010519491231002X", "6222020200112233445", "oCanary0123456789abcdefghijkl", "hook-secret-path", d.keys["crm"][20:]}
	push := func(more map[string]any) string {
		m := map[string]any{"openid": canaries[3], "reference": canaries[1], "callback_url": "https://crm.example/" + canaries[4],
			"data": map[string]any{"thing1": canaries[0], "number2": canaries[2]}}
		for k, v := range more {
			m[k] = v
		}
		return body(t, m)
	}
	require.Equal(t, http.StatusAccepted, d.post(push(map[string]any{"idempotency_key": "a"})).Status)
	require.Equal(t, http.StatusConflict, d.post(push(map[string]any{"idempotency_key": "a", "lane": "bulk"})).Status)
	require.Equal(t, http.StatusBadRequest, d.post(push(map[string]any{"kind": "mass"})).Status)
	require.Equal(t, http.StatusUnauthorized, d.post(push(nil), "Authorization", "Bearer "+d.keys["crm"]+"x").Status)
	for _, err := range []error{fault.New(fault.Unavailable, "publish", "away"), fault.New(fault.Ambiguous, "publish", "late"), fault.New(fault.Internal, "publish", "broken")} {
		d.queue.set(err, nil)
		require.Equal(t, http.StatusServiceUnavailable, d.post(push(nil)).Status)
	}
	all := output(t, logs, reg)
	require.Contains(t, all, "push not queued", "the faults have been written about")
	for _, c := range canaries {
		require.NotContains(t, all, c)
	}
}

// S53: ten thousand users add no series.
func TestS53UsersAddNoSeries(t *testing.T) {
	d, _, reg := watched(t)
	series := func() (n int) {
		all, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range all {
			n += len(f.GetMetric())
		}
		return n
	}
	send := func(from, to int) {
		for at := from; at < to; at += 500 {
			var all []string
			for i := at; i < min(at+500, to); i++ {
				all = append(all, body(t, map[string]any{"openid": fmt.Sprintf("oUser%06d", i), "reference": fmt.Sprint(i)}))
			}
			require.Equal(t, len(all), d.batch(batchOf(all...)).Accepted)
		}
	}
	send(0, 1)
	before := series()
	send(1, 2001)
	require.Equal(t, before, series())
}

// S54: what a caller sends comes back as JSON that no browser takes for a page.
func TestS54AnswersAreNoPages(t *testing.T) {
	d, _, _ := watched(t)
	a := d.post(body(t, map[string]any{"account": "<img src=x onerror=alert(1)>"}))
	require.Equal(t, http.StatusBadRequest, a.Status)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	a = d.post(body(t, map[string]any{"data": map[string]any{"thing1": "<script>alert(1)</script>"}}))
	require.Equal(t, http.StatusAccepted, a.Status)
	require.Equal(t, "<script>alert(1)</script>", d.queue.all()[0].push.Data["thing1"], "escaping is for whoever shows it")
	require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
}

// S70: a key works in the header only, for its scope only, and on no node any more
// 5 s after it was revoked.
func TestS70KeysOnEveryNode(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		var mu sync.Mutex
		now := noon
		clock := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
		var nodes []*desk
		for range 3 {
			nodes = append(nodes, openDesk(t, db, func(d *intake.Deps) { d.Keys = api.NewKeys(api.NewBook(db, clock)) }))
		}
		book := api.NewBook(db, clock)
		a, key, err := book.Add(t.Context(), "s70", []string{api.PushesWrite}, []string{"shop"})
		require.NoError(t, err)
		post := func(d *desk, headers ...string) int { return d.post(body(t, nil), headers...).Status }
		for _, n := range nodes {
			require.Equal(t, http.StatusAccepted, post(n, "Authorization", "Bearer "+key))
			bare := *n
			bare.url += "?key=" + key + "&access_token=" + key
			bare.keys = map[string]string{"crm": ""}
			require.Equal(t, http.StatusUnauthorized, bare.post(body(t, nil)).Status, "a key in the address is none")
			require.Equal(t, http.StatusForbidden, post(n, "Authorization", "Bearer "+n.keys["reader"]), "another scope")
		}
		_, err = book.Revoke(t.Context(), a.KeyID)
		require.NoError(t, err)
		mu.Lock()
		now = now.Add(5 * time.Second)
		mu.Unlock()
		for _, n := range nodes {
			require.Equal(t, http.StatusUnauthorized, post(n, "Authorization", "Bearer "+key))
		}
	})
}
