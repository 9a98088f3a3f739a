package check_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"tidegate/test/chaos/check"
	"tidegate/test/chaos/history"
)

// broken lists what can be wrong with a history, one thing each.
var broken = []struct {
	name, clause, kind string
	// alone: nothing else is wrong with it, so exactly one finding is due.
	alone bool
	// alsoGood: the history may have been refused before it was broken further.
	alsoGood bool
	options  func(*check.Options)
	// breaks gives the new history and the token that must be named.
	breaks func(*editor) ([]history.Event, string)
}{
	{name: "lost record", clause: "C1", kind: "lost", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		token := e.acked()
		return e.without(func(v history.Event) bool {
			return v.Token == token && (v.Kind == history.Logged || v.Kind == history.Reply)
		}), token
	}},
	{name: "lost reply", clause: "C1", kind: "lost", alone: true, options: func(o *check.Options) { o.Replies = true }, breaks: func(e *editor) ([]history.Event, string) {
		token := e.acked()
		return e.without(func(v history.Event) bool { return v.Token == token && v.Kind == history.Reply }), token
	}},
	{name: "doubled reply", clause: "C2", kind: "duplicate", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		r := e.any(history.Reply)
		return append(e.events, e.next(r)), r.Token
	}},
	{name: "doubled record", clause: "C2", kind: "duplicate", alone: true, options: func(o *check.Options) { o.Doubles = false }, breaks: func(e *editor) ([]history.Event, string) {
		r := e.any(history.Logged)
		return append(e.events, e.next(r)), r.Token
	}},
	{name: "record under a second id", clause: "C2", kind: "split identity", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		r := e.any(history.Logged)
		r.ID += "9"
		return append(e.events, e.next(r)), r.Token
	}},
	{name: "two causes under one id", clause: "C2", kind: "merged", options: func(o *check.Options) { o.Doubles = false }, breaks: func(e *editor) ([]history.Event, string) {
		i, k := e.two(history.Logged)
		e.events[k].ID = e.events[i].ID
		return e.events, e.events[k].Token
	}},
	{name: "swapped records", clause: "C3", kind: "inversion", breaks: func(e *editor) ([]history.Event, string) {
		i, k := e.two(history.Logged)
		return e.swap(i, k), e.events[k].Token
	}},
	{name: "swapped replies", clause: "C3", kind: "inversion", breaks: func(e *editor) ([]history.Event, string) {
		i, k := e.two(history.Reply)
		return e.swap(i, k), e.events[k].Token
	}},
	{name: "user in two partitions", clause: "C3", kind: "split key", breaks: func(e *editor) ([]history.Event, string) {
		_, k := e.two(history.Logged)
		r := e.events[k]
		events := e.without(func(v history.Event) bool { return v.Kind == history.Logged && v.Token == r.Token })
		r.Partition = 99
		return append(events, (&editor{e.t, events}).next(r)), r.Token
	}},
	{name: "invented record", clause: "C7", kind: "invented", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		r := e.any(history.Logged)
		r.Token = "#nobody#"
		return append(e.events, e.next(r)), r.Token
	}},
	{name: "invented reply", clause: "C7", kind: "invented", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		r := e.any(history.Reply)
		r.Token = "#nobody#"
		return append(e.events, e.next(r)), r.Token
	}},
	{name: "misdirected record", clause: "C7", kind: "misdirected", breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.Logged, func(v *history.Event) { v.OpenID, v.Key = "stranger", "stranger" })
	}},
	{name: "record under a foreign key", clause: "C7", kind: "misdirected", breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.Logged, func(v *history.Event) { v.Key = "stranger" })
	}},
	{name: "misdirected reply", clause: "C7", kind: "misdirected", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.Reply, func(v *history.Event) { v.OpenID = "stranger" })
	}},
	{name: "record in another account", clause: "C7", kind: "cross-account", breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.Logged, func(v *history.Event) { v.Account = "other" })
	}},
	{name: "record in another account's topic", clause: "C7", kind: "cross-account", breaks: func(e *editor) ([]history.Event, string) {
		r := e.any(history.Logged)
		r.Topic = "t.other.callbacks"
		return append(e.events, e.next(r)), r.Token
	}},
	{name: "reply in another account", clause: "C7", kind: "cross-account", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.Reply, func(v *history.Event) { v.Account = "other" })
	}},
	{name: "late ack", clause: "C8", kind: "late", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.OK, func(v *history.Event) { v.Latency = 4500 * time.Millisecond })
	}},
	{name: "slow acks", clause: "C8", kind: "late", alone: true, alsoGood: true, options: func(o *check.Options) { o.P99 = 500 * time.Millisecond }, breaks: func(e *editor) ([]history.Event, string) {
		for i := range e.events {
			e.events[i].Latency = 501 * time.Millisecond
		}
		return e.events, ""
	}},
	{name: "late record", clause: "C8", kind: "late effect", breaks: func(e *editor) ([]history.Event, string) {
		token := e.acked()
		for i, v := range e.events {
			if v.Kind == history.Logged && v.Token == token {
				e.events[i].Timestamp = e.events[len(e.events)-1].Wall + 60_001
			}
		}
		return e.events, token
	}},
	{name: "malformed answer", clause: "C12", kind: "malformed", breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.OK, func(v *history.Event) { v.Kind, v.Answer = history.Fail, history.Malformed })
	}},
	{name: "ack with another status", clause: "C12", kind: "malformed", breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.OK, func(v *history.Event) { v.Status = 201 })
	}},
	{name: "refusal", clause: "C12", kind: "refused", breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.OK, func(v *history.Event) { v.Kind, v.Status, v.Answer = history.Fail, 503, history.Refused })
	}},
	{name: "silence", clause: "C12", kind: "silent", alsoGood: true, options: func(o *check.Options) { o.Silence = false }, breaks: func(e *editor) ([]history.Event, string) {
		return e.change(history.OK, func(v *history.Event) { v.Kind, v.Status, v.Answer = history.Unknown, 0, history.None })
	}},
	{name: "delivery without an end", clause: "C0", kind: "broken history", breaks: func(e *editor) ([]history.Event, string) {
		end := e.any(history.OK)
		return e.without(func(v history.Event) bool {
			return v.Kind == history.OK && v.Token == end.Token && v.Delivery == end.Delivery
		}), end.Token
	}},
	{name: "delivery that ends twice", clause: "C0", kind: "broken history", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		end := e.any(history.OK)
		return append(e.events, end), end.Token
	}},
	{name: "cause of two users", clause: "C0", kind: "broken history", breaks: func(e *editor) ([]history.Event, string) {
		v := e.any(history.Invoke)
		v.OpenID, v.Delivery = "stranger", 9
		return append(e.events, v), v.Token
	}},
	{name: "two causes of one identity", clause: "C0", kind: "broken history", breaks: func(e *editor) ([]history.Event, string) {
		v := e.any(history.Invoke)
		v.Token = "#again#"
		return append(e.events, v), v.Token
	}},
	{name: "record not read", clause: "C0", kind: "poll skip", breaks: func(e *editor) ([]history.Event, string) {
		i, _ := e.two(history.Logged)
		token := e.after(i) // the next one shows it
		return slices.Delete(e.events, i, i+1), token
	}},
	{name: "record read twice", clause: "C0", kind: "nonmonotonic poll", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		r := e.last(e.any(history.Logged))
		return append(e.events, r), r.Token
	}},
	{name: "unknown kind", clause: "C0", kind: "broken history", alone: true, breaks: func(e *editor) ([]history.Event, string) {
		return append(e.events, history.Event{Kind: "nonsense"}), ""
	}},
}

// editor breaks one history.
type editor struct {
	t      *rapid.T
	events []history.Event
}

// choose draws one of the events that fit; the generator makes sure of some.
func (e *editor) choose(fits func(history.Event) bool) int {
	var at []int
	for i, v := range e.events {
		if fits(v) {
			at = append(at, i)
		}
	}
	return rapid.SampledFrom(at).Draw(e.t, "event")
}

func (e *editor) any(k history.Kind) history.Event {
	return e.events[e.choose(func(v history.Event) bool { return v.Kind == k })]
}

// acked draws an acked cause.
func (e *editor) acked() string { return e.any(history.OK).Token }

// without removes events, and closes the gaps in the offsets.
func (e *editor) without(out func(history.Event) bool) []history.Event {
	next := map[int32]int64{}
	var kept []history.Event
	for _, v := range e.events {
		if out(v) {
			continue
		}
		if v.Kind == history.Logged {
			v.Offset = next[v.Partition]
			next[v.Partition]++
		}
		kept = append(kept, v)
	}
	return kept
}

// next places an effect at the end of its partition, or of the replies.
func (e *editor) next(v history.Event) history.Event {
	v.Offset = 0
	for _, o := range e.events {
		if v.Kind == history.Logged && o.Kind == v.Kind && o.Partition == v.Partition && o.Topic == v.Topic {
			v.Offset = max(v.Offset, o.Offset+1)
		}
		if v.Kind == history.Reply && o.Kind == v.Kind {
			v.Order = max(v.Order, o.Order+1)
		}
	}
	return v
}

// last is the last record of v's partition.
func (e *editor) last(v history.Event) history.Event {
	for _, o := range e.events {
		if o.Kind == history.Logged && o.Partition == v.Partition {
			v = o
		}
	}
	return v
}

// after is the token of the record that follows the removed one at i.
func (e *editor) after(i int) string {
	p := e.events[i]
	for _, o := range e.events {
		if o.Kind == history.Logged && o.Partition == p.Partition && o.Offset == p.Offset+1 {
			return o.Token
		}
	}
	return ""
}

func (e *editor) change(k history.Kind, how func(*history.Event)) ([]history.Event, string) {
	i := e.choose(func(v history.Event) bool { return v.Kind == k })
	how(&e.events[i])
	return e.events, e.events[i].Token
}

// two gives the first effects of the first and the third cause: one user's, the
// first of them acked before the other was sent.
func (e *editor) two(k history.Kind) (first, third int) {
	find := func(token string) int {
		return slices.IndexFunc(e.events, func(v history.Event) bool { return v.Kind == k && v.Token == token })
	}
	return find("#0#"), find("#2#")
}

// swap lets two effects change places; what belongs to the places stays.
func (e *editor) swap(i, k int) []history.Event {
	a, b := e.events[i], e.events[k]
	at := func(v, place history.Event) history.Event {
		v.At, v.Wall, v.Partition, v.Offset, v.Order = place.At, place.Wall, place.Partition, place.Offset, place.Order
		return v
	}
	e.events[i], e.events[k] = at(b, a), at(a, b)
	return e.events
}
