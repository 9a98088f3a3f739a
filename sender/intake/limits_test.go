package intake_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/slice"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/sender/catalogue"
	"tidegate/sender/intake"
)

// shelves are the templates of every account.
type shelves map[string]catalogue.Template

func (s shelves) Find(_ context.Context, _, kind, id string) (catalogue.Template, catalogue.Finding) {
	if s == nil {
		return catalogue.Template{}, catalogue.Away
	}
	if t, ok := s[kind+" "+id]; ok {
		return t, catalogue.Found
	}
	return catalogue.Template{}, catalogue.Unknown
}

func openWith(t *testing.T, d func(*intake.Deps), change ...func(*intake.Config)) *desk {
	return openDesk(t, sqldbtest.OpenSQLite(t), d, change...)
}

var bill = shelves{"template T-bill": {ID: "T-bill", Kind: "template", Keys: []string{"thing1", "amount2"}}}

// What WeChat would refuse a minute later is refused at once, with the field named.
func TestAPushIsHeldAgainstItsTemplate(t *testing.T) {
	d := openWith(t, func(d *intake.Deps) { d.Templates = bill })
	with := func(m map[string]any) string {
		if _, given := m["template_id"]; !given {
			m["template_id"] = "T-bill"
		}
		return body(t, m)
	}
	for name, c := range map[string]struct {
		change         map[string]any
		pointer, words string
	}{
		"unknown template": {map[string]any{"template_id": "T-gone"}, "/template_id", "T-gone"},
		"of another kind":  {map[string]any{"kind": "subscription"}, "/template_id", "subscription template"},
		"missing key":      {map[string]any{"data": map[string]any{"thing1": "x"}}, "/data/amount2", "needs a value"},
		"foreign key":      {map[string]any{"data": map[string]any{"thing1": "x", "amount2": "1", "first": "y"}}, "/data/first", "no such key"},
		"too long":         {map[string]any{"data": map[string]any{"thing1": "一二三四五六七八九十一二三四五六七八九十一", "amount2": "1"}}, "/data/thing1", "at most 20"},
		"wrong form":       {map[string]any{"data": map[string]any{"thing1": "x", "amount2": "a lot"}}, "/data/amount2", "amount"},
	} {
		a := d.post(with(c.change))
		require.Equal(t, http.StatusUnprocessableEntity, a.Status, name)
		require.Equal(t, c.pointer, a.Pointer, name)
		require.Contains(t, a.Detail, c.words, name)
	}
	require.Empty(t, d.queue.all())
	require.Equal(t, http.StatusAccepted, d.post(with(map[string]any{})).Status)
	got := d.batch(batchOf(with(map[string]any{}), with(map[string]any{"template_id": "T-gone"})))
	require.Equal(t, 1, got.Accepted)
	require.Equal(t, http.StatusUnprocessableEntity, got.Results[1].Problem.Status)
}

// A repeat gets the answer of the first time, also when the template has gone since.
func TestARepeatIsAnsweredAsBeforeWhenItsTemplateIsGone(t *testing.T) {
	live := shelves{"template T-bill": bill["template T-bill"]}
	d := openWith(t, func(d *intake.Deps) { d.Templates = live })
	one := body(t, map[string]any{"template_id": "T-bill", "idempotency_key": "k1"})
	before := d.post(one)
	require.Equal(t, http.StatusAccepted, before.Status)
	delete(live, "template T-bill")
	require.Equal(t, before.ID, d.post(one).ID)
	require.Equal(t, before.ID, d.batch(batchOf(one)).Results[0].ID)
	require.Equal(t, http.StatusUnprocessableEntity, d.post(body(t, map[string]any{"template_id": "T-bill", "idempotency_key": "k2"})).Status)
	require.Len(t, d.queue.all(), 1)
}

func TestTheCatalogueIsAway(t *testing.T) {
	d := openWith(t, func(d *intake.Deps) { d.Templates = shelves(nil) })
	a := d.post(body(t, nil))
	require.Equal(t, http.StatusAccepted, a.Status)
	require.Equal(t, "unchecked", a.Header.Get("Tidegate-Template"))
	strict := openWith(t, func(d *intake.Deps) { d.Templates = shelves(nil) }, func(c *intake.Config) { c.Templates = intake.TemplatesMust })
	a = strict.post(body(t, nil))
	require.Equal(t, http.StatusServiceUnavailable, a.Status)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Empty(t, strict.queue.all())
}

// sla limits every app to n calls in an hour.
func sla(t *testing.T, n int64) func(*intake.Deps) {
	cfg := ratelimit.DefaultSLA()
	cfg.App = []slice.Rule{{Limit: n, Period: time.Hour}}
	s, err := ratelimit.NewSLA(cfg, nil, nil, nil)
	require.NoError(t, err)
	return func(d *intake.Deps) { d.Limits = s }
}

// Paper 004, C9: a call above the SLA gets 403 and is not counted, and the caller is
// told where it stands.
func TestACallAboveTheSLAIsRefusedWithItsNumbers(t *testing.T) {
	d := openWith(t, sla(t, 3))
	for i := range 3 {
		a := d.post(body(t, map[string]any{"idempotency_key": strconv.Itoa(i)}))
		require.Equal(t, http.StatusAccepted, a.Status)
		require.Equal(t, "3", a.Header.Get("RateLimit-Limit"))
		require.Equal(t, strconv.Itoa(2-i), a.Header.Get("RateLimit-Remaining"))
		require.Equal(t, "3600", a.Header.Get("RateLimit-Reset"))
	}
	a := d.post(body(t, map[string]any{"idempotency_key": "0"}))
	require.Equal(t, http.StatusAccepted, a.Status, "a repeat costs nothing")
	a = d.post(body(t, nil))
	require.Equal(t, http.StatusForbidden, a.Status)
	require.Equal(t, "over_limit", a.Errcode)
	require.Equal(t, "app", a.Scope)
	require.EqualValues(t, 3, a.Limit)
	require.EqualValues(t, 3, a.Used)
	require.Equal(t, "1h0m0s", a.Period)
	require.Positive(t, a.RetryAfterMS)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Equal(t, "0", a.Header.Get("RateLimit-Remaining"))
	require.Len(t, d.queue.all(), 3)
	got := d.batch(batchOf(body(t, nil)))
	require.Equal(t, http.StatusForbidden, got.Results[0].Problem.Status)

	modern := openWith(t, sla(t, 1), func(c *intake.Config) { c.Limits.Status = 429 })
	require.Equal(t, http.StatusAccepted, modern.post(body(t, nil)).Status)
	require.Equal(t, http.StatusTooManyRequests, modern.post(body(t, nil)).Status)
}

// Queue away: never a 202, and the caller learns when to come back.
func TestQueueAwayIs503WithRetryAfter(t *testing.T) {
	d := openWith(t, func(*intake.Deps) {})
	d.queue.set(fault.New(fault.Unavailable, "publish", "away"), nil)
	for _, key := range []any{nil, "k"} {
		a := d.post(body(t, map[string]any{"idempotency_key": key}))
		require.Equal(t, http.StatusServiceUnavailable, a.Status)
		require.NotEmpty(t, a.Header.Get("Retry-After"))
		require.Empty(t, a.ID)
	}
	d.queue.set(nil, nil)
	require.Equal(t, http.StatusAccepted, d.post(body(t, map[string]any{"idempotency_key": "k"})).Status)
	require.Len(t, d.queue.all(), 1)
}
