package kafka

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
)

// item is one fetched record until the low-water mark has passed it.
type item struct {
	rec  Record
	size int64
	at   time.Time
	done bool
}

// laneKey separates records that must stay in order. Records without a key are
// ordered with nothing, so each gets a lane of its own by its offset.
type laneKey struct {
	key    string
	offset int64
}

// lane is the queue of one key. At most one handler call of a lane runs.
type lane struct {
	key     laneKey
	claim   *claim
	waiting fifo[*item]
	current []*item  // begun; kept until it succeeds
	one     [1]*item // what current is made of where nothing is batched
	queued  bool     // in claim.ready, or running
	stuck   bool     // its last try failed
	fails   int
	first   time.Time // first try of current
	logged  time.Time
	timer   *time.Timer // retry, or linger of a batch
}

// claim is a partition while this member owns it. All fields are guarded by the
// scheduler's lock, but those of the flow, see flow.go.
type claim struct {
	topic     string
	partition int32
	session   sarama.ConsumerGroupSession
	source    sarama.ConsumerGroupClaim
	processed prometheus.Counter
	ctx       context.Context
	cancel    context.CancelFunc
	open      context.Context // something may be begun; ends before ctx, or with it
	shut      context.CancelFunc

	pending fifo[*item] // arrived, beyond MaxAhead
	window  fifo[*item] // admitted, from the low-water mark on
	lanes   map[laneKey]*lane
	spares  []*lane
	ready   fifo[*lane]
	inRing  bool

	waiting      int   // not begun, in pending and lanes
	stuckWaiting int   // of these, behind a stuck record
	stuckLanes   int   // keys that wait for a retry
	bytes        int64 // of everything unfinished
	inFlight     int
	low          int64 // next offset to commit, -1 while unknown
	paused       bool
	draining     bool
	upTo         int64 // while draining: records before it are begun all the same, see holes.go
	cutOff       bool  // lost, or in the hands of handlers that hang: no time to drain
	gone         bool
	idle         chan struct{} // closed when draining and nothing runs

	flow flow
}

func (s *scheduler) laneOf(c *claim, r *Record) *lane {
	k := laneKey{offset: -1}
	switch {
	case s.opt.Batch != nil: // one lane for the whole partition
	case r.Key == nil:
		k.offset = r.Offset
	default:
		k.key = string(r.Key)
	}
	l := c.lanes[k]
	if l == nil {
		l = s.spare(c)
		l.key = k
		c.lanes[k] = l
	}
	return l
}

// spare gives a lane that was used before, if there is one: a lane lives for one
// record where the next one of its key comes later. Its queue keeps its room.
func (s *scheduler) spare(c *claim) *lane {
	if n := len(c.spares); n > 0 {
		l := c.spares[n-1]
		c.spares = c.spares[:n-1]
		return l
	}
	return &lane{claim: c}
}

// maxSpares bounds the lanes that are kept for later.
const maxSpares = 1024

// close takes an empty lane away.
func (c *claim) close(l *lane) {
	delete(c.lanes, l.key)
	if len(c.spares) < maxSpares {
		*l = lane{claim: c, waiting: l.waiting}
		c.spares = append(c.spares, l)
	}
}

// admit lets arrived records into the window, as far as MaxAhead allows.
func (s *scheduler) admit(c *claim) {
	for c.pending.len() > 0 && c.window.len() < s.opt.MaxAhead {
		it := c.pending.pop()
		c.window.push(it)
		l := s.laneOf(c, &it.rec)
		l.waiting.push(it)
		if l.stuck {
			c.stuckWaiting++
		}
		s.wake(l)
	}
}

// wake makes a lane runnable if it has work and is neither queued nor stuck.
func (s *scheduler) wake(l *lane) {
	c := l.claim
	if l.queued || l.stuck || l.waiting.len() == 0 || c.draining && l.next() >= c.upTo {
		return
	}
	if s.opt.Batch != nil && l.waiting.len() < s.opt.BatchMax {
		if rest := s.opt.BatchLinger - time.Since(l.waiting.front().at); rest > 0 {
			if l.timer == nil {
				l.timer = time.AfterFunc(rest, func() { s.lingered(l) })
			}
			return
		}
	}
	s.enqueue(l)
}

func (s *scheduler) lingered(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.timer = nil
	s.wake(l)
}

// enqueue puts a lane to the end of its claim's queue, and the claim into the
// ring from which workers take turns, so that no partition starves another.
func (s *scheduler) enqueue(l *lane) {
	l.queued = true
	c := l.claim
	c.ready.push(l)
	if !c.inRing {
		c.inRing = true
		s.ring.push(c)
	}
	s.work.Signal()
}

// begin moves the next records of a lane into its current set.
func (s *scheduler) begin(l *lane) {
	if l.current != nil {
		return // a retry
	}
	n := 1
	if s.opt.Batch == nil {
		l.current = l.one[:]
	} else {
		n = min(s.opt.BatchMax, l.waiting.len())
		l.current = make([]*item, n)
	}
	for i := range l.current {
		l.current[i] = l.waiting.pop()
	}
	l.claim.waiting -= n
	l.first = time.Now()
}

// succeed finishes a lane's current records and advances the low-water mark.
func (s *scheduler) succeed(l *lane) {
	c := l.claim
	for _, it := range l.current {
		it.done = true
		c.bytes -= it.size
		it.rec = Record{Offset: it.rec.Offset} // the window must not keep the body
	}
	l.current, l.one[0] = nil, nil
	if l.stuck {
		l.stuck, l.fails, l.logged = false, 0, time.Time{}
		c.stuckWaiting -= l.waiting.len()
		c.stuckLanes--
		s.met.held.Dec()
	}
	before := c.low
	for c.window.len() > 0 && c.window.front().done {
		c.low = c.window.pop().rec.Offset + 1
	}
	if c.low != before {
		// Marked under the lock and before idle is closed: the session commits what
		// is marked when ConsumeClaim returns.
		c.session.MarkOffset(c.topic, c.partition, c.low, "")
		s.admit(c)
	}
	if l.waiting.len() == 0 {
		c.close(l)
		return
	}
	s.wake(l)
}

// hold keeps a lane whose handler failed until its pause is over.
func (s *scheduler) hold(l *lane, wait time.Duration) {
	c := l.claim
	if !l.stuck {
		l.stuck = true
		c.stuckWaiting += l.waiting.len()
		c.stuckLanes++
		s.met.held.Inc()
	}
	l.fails++
	if c.draining {
		s.shorten(c, l.next())
		return // its record stays uncommitted and goes to the next owner
	}
	l.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.timer = nil
		if !c.draining {
			s.enqueue(l)
		}
	})
}
