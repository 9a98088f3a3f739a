package check

import (
	"time"

	"tidegate/test/chaos/history"
)

// Options say what a run allows beyond the promises. The zero value is the
// strictest: no refusal, no silence, every record once.
type Options struct {
	// Refusals allows 503: the run has let queue and disk fail together.
	Refusals bool
	// Silence allows deliveries without an answer: doors are killed.
	Silence bool
	// Doubles allows a cause to be in the log more than once, which is what a
	// kill between the log and the mark costs; they are counted. A reply that is
	// visible twice is never allowed.
	Doubles bool
	// Replies demands a reply for every acked cause, not only a record.
	Replies bool
	// AckLimit is the time in which every ack must have come. Default 4.5 s.
	AckLimit time.Duration
	// P99 bounds the 99th percentile of acks; 0 does not.
	P99 time.Duration
	// SettleLimit bounds how long after its ack, and after the end of the last
	// fault, an effect may come. Default 60 s.
	SettleLimit time.Duration
}

func (o Options) withDefaults() Options {
	if o.AckLimit == 0 {
		o.AckLimit = 4500 * time.Millisecond
	}
	if o.SettleLimit == 0 {
		o.SettleLimit = 60 * time.Second
	}
	return o
}

// Check reads a history in the order of history.Read and reports.
func Check(events []history.Event, o Options) *Report {
	c := &checker{
		opt: o.withDefaults(), events: events, causes: map[string]*cause{},
		r: &Report{Found: map[string]int{}, Answers: map[string]int{}, Faults: map[string]int{}},
	}
	c.foldDriver()
	log, replies := c.foldEffects()
	c.effects(log, "record")
	c.effects(replies, "reply")
	c.settled()
	c.acks()
	return c.r
}

// checker holds the folded history. Events are named by their index.
type checker struct {
	opt    Options
	events []history.Event
	causes map[string]*cause
	tokens []string // in the order of their first invoke
	// calm is the wall time in ms at which the last fault ended.
	calm int64
	r    *Report
}

// cause is one callback with all its deliveries.
type cause struct {
	token, account, openid string

	begun     int         // its first invoke
	open      map[int]int // delivery to invoke, without an end so far
	seen      map[int]bool
	acked     int // its first ack's event, -1 for none
	ackInvoke int // that delivery's invoke
	record    int // first record and first reply, -1 for none
	reply     int
	id        string
}

func newCause(e history.Event, at int) *cause {
	return &cause{
		token: e.Token, account: e.Account, openid: e.OpenID, begun: at,
		open: map[int]int{}, seen: map[int]bool{}, acked: -1, ackInvoke: -1, record: -1, reply: -1,
	}
}

// shown is what the history says of a cause up to its ack.
func (c *cause) shown() []int {
	if c.acked < 0 || c.ackInvoke == c.begun {
		return some(c.begun, c.acked)
	}
	return some(c.begun, c.ackInvoke, c.acked)
}

func some(at ...int) []int {
	var out []int
	for _, i := range at {
		if i >= 0 {
			out = append(out, i)
		}
	}
	return out
}

func key(account, openid string) string { return account + "\x00" + openid }
