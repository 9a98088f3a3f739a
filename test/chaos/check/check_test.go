package check_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/test/chaos/check"
	"tidegate/test/chaos/history"
)

// lenient allows what the generated world does.
var lenient = check.Options{Silence: true, Doubles: true, Replies: false}

// A history that keeps every promise is never found fault with.
func TestGoodHistoriesPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := generate(t, true)
		r := check.Check(events, lenient)
		require.True(t, r.OK(), "%s", r)
		require.Equal(t, count(events, history.Invoke), r.Deliveries)
		require.Equal(t, count(events, history.Logged), r.Records)
		require.Equal(t, count(events, history.Reply), r.Replies)
		require.GreaterOrEqual(t, r.Acked, 3)
		require.LessOrEqual(t, r.P50, r.P99)
	})
}

// So is one without duplicates under the stricter rule, with replies demanded.
func TestGoodHistoriesPassStrict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := lenient
		o.Doubles, o.Replies = false, true
		r := check.Check(generate(t, false), o)
		require.True(t, r.OK(), "%s", r)
		require.Zero(t, r.Doubled)
	})
}

func count(events []history.Event, k history.Kind) (n int) {
	for _, e := range events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// Each broken history is one good history with one thing wrong. The checker
// must find exactly that, name the cause, and show events of it.
func TestBrokenHistoriesAreCaught(t *testing.T) {
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				o := lenient
				if b.options != nil {
					b.options(&o)
				}
				before := generate(t, o.Doubles)
				require.True(t, check.Check(before, o).OK() || b.alsoGood)
				events, token := b.breaks(&editor{t, before})
				r := check.Check(events, o)
				require.Positive(t, r.Found[b.kind], "not found: %s", r)
				if b.alone {
					require.Equal(t, map[string]int{b.kind: 1}, r.Found, "%s", r)
				}
				requireNamed(t, r, b.clause, b.kind, token)
			})
		})
	}
}

// requireNamed looks for the finding, and for what must be seen in its slice.
func requireNamed(t *rapid.T, r *check.Report, clause, kind, token string) {
	for _, f := range r.Findings {
		if f.Kind != kind || f.Token != token {
			continue
		}
		require.Equal(t, clause, f.Clause)
		require.LessOrEqual(t, len(f.Slice), 6, "the smallest slice")
		if token != "" {
			require.Contains(t, fmt.Sprint(f.Slice), token)
			require.Contains(t, r.String(), token)
		}
		return
	}
	t.Fatalf("no finding %s names %s: %s", kind, token, r)
}

// Allowed refusals and silences are no findings, and count as answers.
func TestAllowances(t *testing.T) {
	at := int64(0)
	tick := func(e history.Event) history.Event {
		at += 1e6
		e.At, e.Wall, e.Token, e.Account, e.OpenID = at, wall+at/1e6, "#1#", "card", "o1"
		return e
	}
	events := []history.Event{
		tick(history.Event{Kind: history.Invoke, Delivery: 1}),
		tick(history.Event{Kind: history.Fail, Delivery: 1, Status: 503, Answer: history.Refused}),
		tick(history.Event{Kind: history.Invoke, Delivery: 2}),
		tick(history.Event{Kind: history.Fail, Delivery: 2, Answer: history.None, Text: "connection refused"}),
		tick(history.Event{Kind: history.Invoke, Delivery: 3}),
		tick(history.Event{Kind: history.Unknown, Delivery: 3, Status: 200, Answer: history.None, Text: "unexpected EOF"}),
	}
	require.True(t, check.Check(events, check.Options{Refusals: true, Silence: true}).OK())
	r := check.Check(events, check.Options{})
	require.Equal(t, map[string]int{"refused": 1, "silent": 2}, r.Found)
	require.Equal(t, map[string]int{"refused": 1, "none": 2}, r.Answers)
}

// The deadline of an effect counts from its ack or from the end of the last
// fault, whichever is later.
func TestSettleDeadline(t *testing.T) {
	history := func(fault, effect time.Duration) []history.Event {
		e := history.Event{Token: "#1#", Account: "card", OpenID: "o1", Delivery: 1}
		with := func(at time.Duration, change func(*history.Event)) history.Event {
			n := e
			n.At, n.Wall = int64(at), wall+at.Milliseconds()
			change(&n)
			return n
		}
		return []history.Event{
			with(0, func(e *history.Event) { e.Kind = history.Invoke }),
			with(time.Second, func(e *history.Event) { e.Kind, e.Status, e.Answer = history.OK, 200, history.Success }),
			with(fault, func(e *history.Event) { e.Kind, e.What, e.Phase = history.Fault, "SIGSTOP", history.End }),
			with(200*time.Second, func(e *history.Event) {
				e.Kind, e.Topic, e.Key, e.ID, e.Timestamp = history.Logged, "t.card.callbacks", "o1", "1", wall+effect.Milliseconds()
			}),
		}
	}
	require.True(t, check.Check(history(2*time.Second, 62*time.Second), check.Options{}).OK())
	require.Equal(t, 1, check.Check(history(2*time.Second, 63*time.Second), check.Options{}).Found["late effect"])
	require.True(t, check.Check(history(90*time.Second, 150*time.Second), check.Options{}).OK())
}

// Many findings are all counted, and the report stays readable.
func TestFindingsAreBounded(t *testing.T) {
	var events []history.Event
	for i := range 500 {
		events = append(events, history.Event{Kind: history.Reply, Token: fmt.Sprintf("#%d#", i), Order: int64(i + 1)})
	}
	r := check.Check(events, check.Options{})
	require.Equal(t, 500, r.Found["invented"])
	require.Len(t, r.Findings, 50)
}

// The checker is linear: ten times the history, about ten times the time.
func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			events := straight(n)
			b.ResetTimer()
			for b.Loop() {
				if r := check.Check(events, check.Options{}); !r.OK() || r.Acked != n {
					b.Fatal(r)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/callback")
		})
	}
}

func straight(n int) []history.Event {
	var events, log []history.Event
	for i := range n {
		e := history.Event{At: int64(2 * i), Wall: wall, Token: fmt.Sprintf("#%d#", i), Account: "card", OpenID: fmt.Sprintf("o%d", i%500), Delivery: 1}
		e.Kind = history.Invoke
		events = append(events, e)
		e.At++
		e.Kind, e.Status, e.Answer, e.Latency = history.OK, 200, history.Success, time.Millisecond
		events = append(events, e)
		log = append(log, history.Event{
			At: int64(4 * n), Kind: history.Logged, Token: e.Token, ID: fmt.Sprint(i), Account: e.Account, OpenID: e.OpenID, Key: e.OpenID,
			Topic: "t.card.callbacks", Offset: int64(i), Timestamp: wall,
		})
	}
	return append(events, log...)
}
