package check_test

import (
	"fmt"
	"hash/fnv"
	"time"

	"pgregory.net/rapid"

	"tidegate/test/chaos/history"
)

// world is a deployment that keeps every promise, as small as can be: a log
// that an ack always comes after. What it may do beyond that is left to dice:
// deliveries side by side, lost answers, doubled records, effects of callbacks
// that nobody was told about.
type world struct {
	t       *rapid.T
	now     time.Duration
	events  []history.Event
	log     map[int32][]history.Event
	replies []history.Event
	causes  []*sent
	open    []flight
	doubles bool
}

type sent struct {
	invoke     history.Event // the fields that all deliveries share
	deliveries int
	recorded   bool
	acked      bool
}

type flight struct {
	s     *sent
	n     int
	begun time.Duration
}

const partitions = 3

// wall is when the run began.
const wall = int64(1_900_000_000_000)

// generate makes a history in which nothing is wrong. Its first causes are three
// of one user, one after the other, so that there is an order to be kept.
func generate(t *rapid.T, doubles bool) []history.Event {
	w := &world{t: t, log: map[int32][]history.Event{}, doubles: doubles}
	for range 3 {
		s := w.cause("card", "o1")
		w.deliver(s)
		f := w.land(len(w.open) - 1)
		w.record(f.s)
		w.ack(f)
	}
	for range rapid.IntRange(0, 120).Draw(t, "steps") {
		w.step()
	}
	for len(w.open) > 0 {
		w.finish(0)
	}
	return w.read()
}

func (w *world) dice(n int, what string) int { return rapid.IntRange(0, n-1).Draw(w.t, what) }

func (w *world) step() {
	switch w.dice(8, "step") {
	case 0, 1, 2:
		account := []string{"card", "shop"}[w.dice(2, "account")]
		w.deliver(w.cause(account, fmt.Sprintf("o%d", w.dice(3, "user"))))
	case 3, 4:
		if len(w.open) > 0 {
			w.finish(w.dice(len(w.open), "which"))
		}
	case 5: // the record is there; the answer comes later, or never
		if len(w.open) > 0 {
			w.record(w.open[w.dice(len(w.open), "which")].s)
		}
	case 6: // again, also beside a delivery that is still open
		s := w.causes[w.dice(len(w.causes), "cause")]
		if !s.acked && s.deliveries < 4 {
			w.deliver(s)
		}
	case 7:
		w.add(history.Event{Kind: history.Fault, What: "SIGKILL", Target: "proxy0", Phase: history.Once, PID: 7})
	}
}

func (w *world) add(e history.Event) history.Event {
	w.now += time.Duration(1+w.dice(40, "ms")) * time.Millisecond
	e.At, e.Wall = int64(w.now), wall+w.now.Milliseconds()
	w.events = append(w.events, e)
	return e
}

func (w *world) cause(account, openid string) *sent {
	n := len(w.causes)
	s := &sent{invoke: history.Event{
		Token: fmt.Sprintf("#%d#", n), Account: account, OpenID: openid, Identity: fmt.Sprintf("%s|%s|%d", account, openid, n),
	}}
	w.causes = append(w.causes, s)
	return s
}

func (w *world) deliver(s *sent) {
	s.deliveries++
	e := s.invoke
	e.Kind, e.Delivery, e.Node = history.Invoke, s.deliveries, "proxy0"
	w.add(e)
	w.open = append(w.open, flight{s, s.deliveries, w.now})
}

// record puts the cause into the log of its user's partition. A second time is a
// duplicate; the reply comes once.
func (w *world) record(s *sent) {
	if s.recorded && !w.doubles {
		return
	}
	i := s.invoke
	h := fnv.New32a()
	_, _ = h.Write([]byte(i.OpenID))
	p := int32(h.Sum32() % partitions)
	id := fnv.New64a()
	_, _ = id.Write([]byte(i.Identity))
	w.now += time.Millisecond
	e := history.Event{
		Kind: history.Logged, Node: "kafka", Token: i.Token, Account: i.Account, OpenID: i.OpenID, Key: i.OpenID, ID: fmt.Sprint(id.Sum64()),
		Topic: "t." + i.Account + ".callbacks", Partition: p, Timestamp: wall + w.now.Milliseconds(),
	}
	if i.Account == "shop" {
		e.Partition += partitions // its own topic: kept apart by the number alone here
	}
	e.Offset = int64(len(w.log[e.Partition]))
	w.log[e.Partition] = append(w.log[e.Partition], e)
	if !s.recorded {
		w.replies = append(w.replies, history.Event{
			Kind: history.Reply, Token: i.Token, Account: i.Account, OpenID: i.OpenID, Order: int64(len(w.replies) + 1), Timestamp: e.Timestamp + 1,
		})
	}
	s.recorded = true
}

// finish ends a delivery: with an ack, which only comes after the record, or
// without an answer, with the record or not.
func (w *world) finish(i int) {
	f := w.land(i)
	switch w.dice(4, "end") {
	case 0:
		w.end(f, history.Event{Kind: history.Unknown, Answer: history.None, Text: "EOF"})
	case 1:
		w.record(f.s)
		w.end(f, history.Event{Kind: history.Unknown, Answer: history.None, Text: "EOF"})
	default:
		if !f.s.recorded {
			w.record(f.s)
		}
		w.ack(f)
	}
}

func (w *world) land(i int) flight {
	f := w.open[i]
	w.open = append(w.open[:i:i], w.open[i+1:]...)
	return f
}

func (w *world) ack(f flight) {
	f.s.acked = true
	class := []string{history.Success, history.Empty, history.Passive}[w.dice(3, "class")]
	w.end(f, history.Event{Kind: history.OK, Status: 200, Answer: class})
}

func (w *world) end(f flight, e history.Event) {
	e.Token, e.Delivery, e.Node = f.s.invoke.Token, f.n, "proxy0"
	e.Latency = min(w.now-f.begun, 4*time.Second) // so many steps of 40 ms may be longer
	w.add(e)
}

// read appends what a reader finds afterwards, partition by partition.
func (w *world) read() []history.Event {
	for p := range int32(2 * partitions) {
		for _, e := range w.log[p] {
			w.add(e)
		}
	}
	for _, e := range w.replies {
		w.add(e)
	}
	return w.events
}
