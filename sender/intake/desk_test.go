package intake_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/idgen"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
	"tidegate/sender/intake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// queue is the durable queue: what Post has taken, and faults on demand.
type queue struct {
	mu     sync.Mutex
	posted []posted
	fail   error // answered instead of taking
	lost   error // answered after taking: the confirmation was lost

	entered, hold chan struct{} // if set, Post announces itself and waits
}

type posted struct {
	topic string
	push  wire.Push
}

func (q *queue) Post(_ context.Context, topic string, l wire.Letter) error {
	if q.entered != nil {
		q.entered <- struct{}{}
		<-q.hold
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fail != nil {
		return q.fail
	}
	if _, _, _, err := wire.Encode(l); err != nil {
		return err
	}
	q.posted = append(q.posted, posted{topic, *l.(*wire.Push)})
	return q.lost
}

func (q *queue) set(fail, lost error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fail, q.lost = fail, lost
}

func (q *queue) all() []posted {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]posted(nil), q.posted...)
}

// desk is a running intake.
type desk struct {
	*intake.Intake
	keys  map[string]string // app → key
	book  *api.Book
	queue *queue
	url   string
	t     *testing.T
	now   time.Time
}

var noon = time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)

const openid = "oZx81wQk2Lr7nVb0TtYpSdUeGhA4"

func open(t *testing.T, db *sqldb.DB, change ...func(*intake.Config)) *desk {
	t.Helper()
	return openDesk(t, db, func(*intake.Deps) {}, change...)
}

// openDesk is open with more of what an intake asks.
func openDesk(t *testing.T, db *sqldb.DB, with func(*intake.Deps), change ...func(*intake.Config)) *desk {
	t.Helper()
	cfg := intake.DefaultConfig()
	for _, c := range change {
		c(&cfg)
	}
	d := &desk{queue: &queue{}, t: t, now: noon}
	clock := func() time.Time { return d.now }
	require.NoError(t, api.Migrate(t.Context(), db))
	book := api.NewBook(db, nil)
	d.book = book
	d.keys = map[string]string{}
	for app, scope := range map[string]string{"crm": api.PushesWrite, "bank": api.PushesWrite, "reader": api.MessagesRead} {
		account := api.AllAccounts
		if app == "bank" {
			account = "bank"
		}
		_, key, err := book.Add(t.Context(), app, []string{scope}, []string{account})
		require.NoError(t, err)
		d.keys[app] = key
	}
	deps := intake.Deps{
		DB: db, Keys: api.NewKeys(book), Outbox: d.queue, IDs: idgen.NewGenerator(idgen.Fixed(7), nil),
		Topics: wire.Topics{Prefix: "tg"}, Log: zap.NewNop(), Now: clock,
	}
	with(&deps)
	in, err := intake.New(t.Context(), cfg, deps)
	require.NoError(t, err)
	in.SetAccounts(map[string]string{"shop": "wx9f3c7b21d08e4a56", "bank": "wx0000000000000001"})
	d.Intake = in
	s := httptest.NewServer(in.Handler())
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	d.url = s.URL
	return d
}

// answer is what a business system sees.
type answer struct {
	Status       int
	Header       http.Header
	ID           string `json:"id"`
	State        string `json:"state"`
	Detail       string `json:"detail"`
	Field        string `json:"field"`
	Pointer      string `json:"pointer"`
	Errcode      string `json:"errcode"`
	Scope        string `json:"scope"`
	Period       string `json:"period"`
	Limit, Used  int64
	RetryAfterMS int64  `json:"retry_after_ms"`
	Do           string `json:"do"`
}

func (d *desk) post(body string, headers ...string) answer {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.url, bytes.NewReader([]byte(body)))
	require.NoError(d.t, err)
	r.Header.Set("Authorization", "Bearer "+d.keys["crm"])
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, res.Body.Close()) }()
	b, err := io.ReadAll(res.Body)
	require.NoError(d.t, err)
	a := answer{Status: res.StatusCode, Header: res.Header}
	require.NoError(d.t, json.Unmarshal(b, &a), "%s", b)
	return a
}

// body is a good request with some fields replaced; a nil value removes one.
func body(t *testing.T, changes map[string]any) string {
	t.Helper()
	m := map[string]any{
		"account": "shop", "kind": "template", "lane": "realtime", "openid": openid,
		"template_id": "ngqIpbwh8bUfcSsECmogfXcV14J0tQlEpBO27izEYtY",
		"data":        map[string]any{"thing1": "电费账单", "amount2": "¥12.50"},
	}
	for k, v := range changes {
		if v == nil {
			delete(m, k)
		} else {
			m[k] = v
		}
	}
	b, err := json.Marshal(m)
	require.NoError(t, err)
	return string(b)
}
