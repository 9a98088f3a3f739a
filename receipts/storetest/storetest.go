// Package storetest is the conformance suite of receipts/store: every store
// passes it, on every engine.
package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/idgen"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// Clock is driven by the suite.
type Clock struct {
	mu sync.Mutex
	t  time.Time
}

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// Step moves the clock.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// Open makes an empty store with the suite's clock.
type Open func(t *testing.T, now func() time.Time) store.Store

// Run runs the suite; open is called once per test.
func Run(t *testing.T, open Open) {
	for name, test := range map[string]func(*testing.T, *bench){
		"any order ends in the same row":               anyOrder,
		"random news follows the table of states":      randomNews,
		"repeats change nothing":                       repeats,
		"an event may come before the outcome":         earlyEvents,
		"an event may come late":                       lateEvents,
		"G29 foreign events make no message":           foreignEvents,
		"contradictory ends are flagged":               contradictions,
		"msg ids keep all their digits":                longMsgIDs,
		"one id with two identities is two messages":   variants,
		"news without a hash joins its id":             hashless,
		"parallel writers lose nothing":                parallel,
		"an event and its outcome meet from two sides": meeting,
		"pages are stable under inserts":               pages,
		"filters select":                               filters,
		"failures are grouped":                         failures,
		"users' repeats are counted":                   userRepeats,
		"old rows go and the sums follow":              purge,
		"letters are kept for a re-send":               letters,
		"a re-send is executed once":                   resends,
		"odd texts are stored":                         oddTexts,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Clock{t: time.Date(2026, 3, 2, 4, 0, 0, 0, time.UTC)}
			b := &bench{t: t, clock: c, Store: open(t, c.Now)}
			test(t, b)
			b.checkTallies()
		})
	}
}

// bench is a store with helpers.
type bench struct {
	store.Store
	t     *testing.T
	clock *Clock
}

// id makes the id and hash of the n-th test message.
func id(n int) (string, string) {
	h := idgen.HashOf("storetest", fmt.Sprint(n))
	return idgen.Derive(idgen.User("wx1", openID(n)), h), h.String()
}

func openID(n int) string { return fmt.Sprintf("oUser-%06d", n) }
func msgID(n int) string  { return fmt.Sprint(4_000_000_000+n, "77") }

// at is the k-th second of the test's day.
func (b *bench) at(k int) int64 { return b.clock.Now().Add(time.Duration(k) * time.Second).UnixMilli() }

func (b *bench) receipt(r wire.Receipt) store.News {
	b.t.Helper()
	n, err := store.FromReceipt(&r, b.clock.Now())
	require.NoError(b.t, err)
	return n
}

func (b *bench) push(n int) wire.Push {
	i, h := id(n)
	return wire.Push{ID: i, IdentityHash: h, Account: "bank", App: "card", Lane: wire.LaneRealtime, PushKind: wire.PushTemplate,
		OpenID: openID(n), TemplateID: "tpl-1", Reference: fmt.Sprint("ref-", n), Data: map[string]string{"first": "x"}, AcceptedAt: b.at(0)}
}

func (b *bench) queued(n int) store.News {
	b.t.Helper()
	p := b.push(n)
	_, letter, _, err := wire.Encode(&p)
	require.NoError(b.t, err)
	news, err := store.FromPush(&p, letter, b.clock.Now())
	require.NoError(b.t, err)
	return news
}

// outcome is the sender's news about the n-th push.
func (b *bench) outcome(n int, st wire.State, k int) store.News {
	i, h := id(n)
	r := wire.Receipt{Source: wire.FromSender, MessageKind: wire.KindPush, ID: i, IdentityHash: h, Account: "bank", OpenID: openID(n),
		App: "card", TemplateID: "tpl-1", State: st, Attempt: 1, At: b.at(k)}
	if st == wire.Accepted {
		r.MsgID = msgID(n)
	}
	return b.receipt(r)
}

// event is WeChat's news about the n-th push.
func (b *bench) event(n int, st wire.State, k int) store.News {
	return b.receipt(wire.Receipt{Source: wire.FromWeChat, MessageKind: wire.KindPush, Account: "bank", OpenID: openID(n), MsgID: msgID(n),
		State: st, Reason: "said " + string(st), Event: "TEMPLATESENDJOBFINISH", At: b.at(k)})
}

func (b *bench) apply(news ...store.News) store.Applied {
	b.t.Helper()
	a, err := b.Apply(context.Background(), news)
	require.NoError(b.t, err)
	return a
}

// row reads the n-th message, which must be one row.
func (b *bench) row(n int) *store.Message {
	b.t.Helper()
	i, _ := id(n)
	ms, err := b.Get(context.Background(), i)
	require.NoError(b.t, err)
	require.Len(b.t, ms, 1)
	return ms[0]
}

func (b *bench) steps(n int) []store.Step {
	b.t.Helper()
	i, _ := id(n)
	st, err := b.Steps(context.Background(), i, 0)
	require.NoError(b.t, err)
	return st
}

// all reads everything, page by page.
func (b *bench) all(f store.Filter, page int) []*store.Message {
	b.t.Helper()
	var out []*store.Message
	var after *store.Mark
	for {
		ms, err := b.List(context.Background(), f, after, page)
		require.NoError(b.t, err)
		out = append(out, ms...)
		if len(ms) < page {
			return out
		}
		m := ms[len(ms)-1].Mark()
		after = &m
	}
}

// checkTallies compares the kept counts with the rows (G30).
func (b *bench) checkTallies() {
	b.t.Helper()
	want := map[string]int64{}
	for _, m := range b.all(store.Filter{}, store.MaxPage) {
		want[fmt.Sprint(m.Account, m.Kind, m.State)]++
	}
	got := map[string]int64{}
	ts, err := b.Tallies(context.Background(), time.Time{}, time.Time{})
	require.NoError(b.t, err)
	for _, t := range ts {
		got[fmt.Sprint(t.Account, t.Kind, t.State)] = t.N
	}
	require.Equal(b.t, want, got)
	for _, s := range store.Sums(ts) {
		var n int64
		for _, v := range s.Buckets {
			n += v
		}
		require.Equal(b.t, s.Intents, n)
	}
}

func (b *bench) parking() (waiting, foreign int64) {
	b.t.Helper()
	waiting, foreign, err := b.Parking(context.Background())
	require.NoError(b.t, err)
	return waiting, foreign
}

// shuffled is a repeatable shuffle.
func shuffled(news []store.News, seed uint64) []store.News {
	out := append([]store.News(nil), news...)
	r := rand.New(rand.NewPCG(seed, 1))
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
