package intake_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/sender/intake"
)

func TestAcceptedPushIsInTheQueue(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a := d.post(body(t, map[string]any{
		"url": "https://example.com/bill?a=1&b=2", "mini_app_id": "wx0123456789abcdef", "mini_path": "pages/bill?id=1",
		"reference": "bill 4711", "expires_at": "2026-11-30T13:00:00+08:00", "lane": "bulk",
	}), "Traceparent", trace)
	require.Equal(t, http.StatusAccepted, a.Status, a.Detail)
	require.Equal(t, "/v1/messages/"+a.ID, a.Header.Get("Location"))
	require.Equal(t, "queued", a.State)
	parts, err := idgen.Parse(a.ID)
	require.NoError(t, err)
	require.EqualValues(t, idgen.Generated, parts.Version)
	require.Equal(t, idgen.User("wx9f3c7b21d08e4a56", openid).Digits(), parts.Digits)

	require.Equal(t, []posted{{"tg.shop.pushes.bulk", wire.Push{
		ID: a.ID, Account: "shop", App: "crm", Lane: "bulk", PushKind: "template", OpenID: openid,
		TemplateID: "ngqIpbwh8bUfcSsECmogfXcV14J0tQlEpBO27izEYtY",
		Data:       map[string]string{"thing1": "电费账单", "amount2": "¥12.50"},
		URL:        "https://example.com/bill?a=1&b=2", MiniAppID: "wx0123456789abcdef", MiniPath: "pages/bill?id=1",
		Reference: "bill 4711", AcceptedAt: noon.UnixMilli(), ExpiresAt: noon.Add(time.Hour).UnixMilli(), TraceParent: trace,
	}}}, d.queue.all())
}

func TestDefaults(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	a := d.post(body(t, map[string]any{"kind": nil, "lane": nil}))
	require.Equal(t, http.StatusAccepted, a.Status, a.Detail)
	p := d.queue.all()[0]
	require.Equal(t, "tg.shop.pushes.realtime", p.topic)
	require.Equal(t, wire.PushTemplate, p.push.PushKind)
}

func TestSameKeySameAnswerOnEveryNode(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		a, b := open(t, db), open(t, db)
		first := a.post(body(t, nil), "Idempotency-Key", "order-1")
		require.Equal(t, http.StatusAccepted, first.Status, first.Detail)
		parts, err := idgen.Parse(first.ID)
		require.NoError(t, err)
		require.EqualValues(t, idgen.Derived, parts.Version)
		require.Equal(t, idgen.HashOf("push", "crm", "order-1").String(), a.queue.all()[0].push.IdentityHash)

		b.now = noon.Add(time.Hour)
		for _, again := range []answer{
			b.post(body(t, map[string]any{"idempotency_key": "order-1"})), // as a field
			a.post(" "+strings.Replace(body(t, nil), ",", " ,\n", 1), "Idempotency-Key", "order-1"),
			b.post(body(t, map[string]any{"kind": nil}), "Idempotency-Key", "order-1"), // means the same
		} {
			require.Equal(t, http.StatusAccepted, again.Status, again.Detail)
			require.Equal(t, first.ID, again.ID)
		}
		require.Len(t, a.queue.all(), 1)
		require.Empty(t, b.queue.all(), "a repeat is answered from memory")

		other := b.post(body(t, map[string]any{"data": map[string]any{"thing1": "another text"}}), "Idempotency-Key", "order-1")
		require.Equal(t, http.StatusConflict, other.Status)
		require.Equal(t, "idempotency_key", other.Field)
		other = b.post(body(t, map[string]any{"openid": "oAnotherFollower000000000000"}), "Idempotency-Key", "order-1")
		require.Equal(t, http.StatusConflict, other.Status)
		bank := b.post(body(t, map[string]any{"account": "bank"}), "Idempotency-Key", "order-1", "Authorization", "Bearer "+b.keys["bank"])
		require.Equal(t, http.StatusAccepted, bank.Status, "keys of two apps do not meet")
		require.NotEqual(t, first.ID, bank.ID)
	})
}

func TestManyAtOnceWithOneKeyGetOneID(t *testing.T) {
	sqldbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		nodes := []*desk{open(t, db), open(t, db)}
		var mu sync.Mutex
		ids := map[string]int{}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				a := nodes[i%2].post(body(t, nil), "Idempotency-Key", "k")
				mu.Lock()
				defer mu.Unlock()
				ids[a.ID]++
			})
		}
		wg.Wait()
		require.Len(t, ids, 1)
		for _, n := range nodes {
			for _, p := range n.queue.all() {
				require.Contains(t, ids, p.push.ID, "whatever was queued more than once carries the one id")
			}
		}
	})
}

// Never a 202 that is not durable, and a repeat after any failure is safe.
func TestQueueAwayIsNotAccepted(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	d.queue.set(fault.New(fault.Unavailable, "publish", "no broker"), nil)
	for _, headers := range [][]string{nil, {"Idempotency-Key", "k1"}} {
		a := d.post(body(t, nil), headers...)
		require.Equal(t, http.StatusServiceUnavailable, a.Status)
		require.Equal(t, "5", a.Header.Get("Retry-After"))
		require.Empty(t, a.ID)
		require.Contains(t, a.Do, "Nothing was done")
	}
	require.Empty(t, d.queue.all())
	d.queue.set(nil, nil)
	a := d.post(body(t, nil), "Idempotency-Key", "k1")
	require.Equal(t, http.StatusAccepted, a.Status)
	require.Len(t, d.queue.all(), 1, "the failed request left nothing that stops the repeat")
}

func TestUnconfirmedPublishIsRepeatedWithTheSameLetter(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	d.queue.set(nil, fault.New(fault.Ambiguous, "publish", "no answer in time"))
	a := d.post(body(t, nil), "Idempotency-Key", "k1")
	require.Equal(t, http.StatusServiceUnavailable, a.Status)
	require.Equal(t, "2", a.Header.Get("Retry-After"))
	require.Contains(t, a.Do, "same idempotency key")
	d.queue.set(nil, nil)
	d.now = noon.Add(3 * time.Second)
	a = d.post(body(t, nil), "Idempotency-Key", "k1")
	require.Equal(t, http.StatusAccepted, a.Status)
	all := d.queue.all()
	require.Len(t, all, 2)
	require.Equal(t, all[0], all[1], "the same letter to the last byte, also its time")
	require.Equal(t, a.ID, all[0].push.ID)
}

func TestUnclassifiedFailureTellsNothing(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t))
	d.queue.set(errors.New("secret inside: tcp 10.0.0.1"), nil)
	a := d.post(body(t, nil))
	require.Equal(t, http.StatusServiceUnavailable, a.Status)
	require.NotContains(t, a.Detail, "10.0.0.1")
}

func TestDatabaseAway(t *testing.T) {
	db, err := sqldb.Open(t.Context(), sqldb.Config{Driver: sqldb.SQLite, DSN: t.TempDir() + "/x.db"})
	require.NoError(t, err)
	d := open(t, db)
	require.Equal(t, http.StatusAccepted, d.post(body(t, nil)).Status)
	require.NoError(t, db.Close())
	a := d.post(body(t, nil), "Idempotency-Key", "k1")
	require.Equal(t, http.StatusServiceUnavailable, a.Status)
	require.Len(t, d.queue.all(), 1, "what cannot be remembered is not published")
}

func TestTooManyAtOnce(t *testing.T) {
	d := open(t, sqldbtest.OpenSQLite(t), func(c *intake.Config) { c.MaxInFlight = 1 })
	d.queue.entered, d.queue.hold = make(chan struct{}), make(chan struct{})
	first := make(chan answer, 1)
	go func() { first <- d.post(body(t, nil)) }()
	<-d.queue.entered
	a := d.post(body(t, nil))
	require.Equal(t, http.StatusServiceUnavailable, a.Status)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	close(d.queue.hold)
	require.Equal(t, http.StatusAccepted, (<-first).Status)
	require.Len(t, d.queue.all(), 1)
}
