package ratelimit

import (
	"context"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"
)

// permit is the right to one departure between two moments of this node's clock.
type permit struct{ from, until int64 }

// Shared is one node's part in a cap over the cluster. It is safe for concurrent
// use.
type Shared struct {
	line
	name     string
	node     string // random: a process that is started again is another node
	cfg      Config
	log      *zap.Logger
	stats    stats
	exchange exchange
	now      func() int64 // nanoseconds, by the monotonic clock
	ahead    func() int64 // how far the wall clock is ahead of it

	stop context.CancelFunc
	done sync.WaitGroup
	kick chan struct{}

	// All below is guarded by the line's lock.
	own      Limit // as this node was told
	how      change
	rising   *slope // of own, for shares
	limit    Limit  // that holds: own, or what others know better
	version  int64
	heard    bool // Redis has answered once
	permits  []permit
	skew     int64 // ahead when the last permits came
	pace     gcra  // of this node: whatever Redis says, it stays within the cap
	inFlight int
	allow    int   // places that this node may use
	register int   // places that Redis keeps for it
	placesTo int64 // when they end
	granted  uint64
	bulk     float64 // see Reserve

	asking  bool
	askedAt int64 // when the last question left
	triedAt int64 // when it ended
	retryAt int64 // when to ask again is of use
	put     bool  // the server's clock was put forward, which it does not know yet
	restTo  int64 // until when nothing can be given out
	// The last answer: which beginning of the cap, the server's time in µs, and
	// when its question left.
	begun, serverAt, leftAt int64
	next                    int64 // when the keeper asks next
	failing                 int64 // since when Redis has not answered; 0 if it has
	// failedAt is when the last failure ended.
	failedAt int64
	share    *share // not nil while this node lives on it
	shareTo  int64  // until when it is shown that Redis is away
}

// Acquire waits for a permit; see Limiter.Acquire. Priorities order the callers
// of this node.
func (s *Shared) Acquire(ctx context.Context, priority int) (release func(), err error) {
	begin := time.Now()
	release, err = s.line.Acquire(ctx, priority)
	if err == nil {
		s.stats.waited(time.Since(begin))
	}
	return release, err
}

// TryTake takes a permit if one is free now and nobody waits for it.
func (s *Shared) TryTake() bool {
	if !s.line.TryTake() {
		return false
	}
	s.stats.waited(0)
	return true
}

// turn says how long the first in the queue has to wait.
func (s *Shared) turn() time.Duration {
	now := s.now()
	if s.own.Rate == 0 && s.own.Concurrency == 0 {
		return 0
	}
	if s.share != nil {
		return s.shareTurn(now)
	}
	s.lapse(now)
	s.nudge(now)
	if !s.heard {
		return full
	}
	if s.limit.Concurrency > 0 && (s.inFlight >= s.allow || now >= s.placesTo) {
		return full
	}
	if s.limit.Rate == 0 {
		return 0
	}
	if len(s.permits) == 0 {
		return full
	}
	return max(time.Duration(s.permits[0].from-now), s.pace.wait(now), 0)
}

// shareTurn is turn while Redis is away.
func (s *Shared) shareTurn(now int64) time.Duration {
	l := s.share
	if now >= s.shareTo || l.paused || l.places > 0 && s.inFlight >= l.places {
		return full
	}
	if !l.rate {
		return 0
	}
	return l.pace.wait(now)
}

// take uses up the permit that turn found.
func (s *Shared) take() {
	now := s.now()
	switch {
	case s.share != nil:
		s.share.pace.take(now)
	case len(s.permits) > 0 && s.limit.Rate > 0:
		s.permits = s.permits[1:]
	}
	s.pace.take(now)
	s.inFlight++
	s.granted++
	s.stats.granted.Inc()
}

func (s *Shared) back() {
	s.inFlight--
	s.nudge(s.now())
}

// lapse drops the permits whose time has passed (T41). A wall clock that moved
// against ours means that the machine or one of the clocks stood still: then it
// cannot be told what time it is for a permit.
func (s *Shared) lapse(now int64) {
	n := 0
	for n < len(s.permits) && s.permits[n].until < now {
		n++
	}
	if d := s.ahead() - s.skew; n < len(s.permits) && (d > int64(10*time.Millisecond) || d < -int64(10*time.Millisecond)) {
		n = len(s.permits)
	}
	if n > 0 {
		s.permits = s.permits[n:]
		s.stats.lapsed.Add(float64(n))
	}
}

// short is the number of permits that callers wait for, beyond those in hand.
func (s *Shared) short() int {
	if s.limit.Rate == 0 && s.heard {
		return 0
	}
	n := len(s.queue)
	if s.limit.Concurrency > 0 && s.heard {
		n = min(n, s.allow-s.inFlight)
	}
	return max(n-len(s.permits), 0)
}

// Reserve keeps a part of the rate for callers of priority 0: while such callers
// wait on any node, the others together get no more than share of the rate, beyond
// one permit and what 0.45 s of it are. A share of 0 or 1 reserves nothing. On one node they go
// strictly first anyway. While Redis is away only that holds.
func (s *Shared) Reserve(share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bulk = 0
	if share > 0 && share < 1 {
		s.bulk = share
	}
}

// firsts is how many of the permits wanted are for callers that go first.
func (s *Shared) firsts(want int) int {
	if s.bulk == 0 || want == 0 {
		return 0
	}
	n := 0
	for _, w := range s.queue {
		if w.priority <= 0 {
			n++
		}
	}
	return min(max(n-len(s.permits), 0), want)
}

// shortOfPlaces reports whether callers wait for places.
func (s *Shared) shortOfPlaces() bool {
	return s.own.Concurrency > 0 && s.inFlight+len(s.queue) > s.allow
}

// due is when the next question should leave.
func (s *Shared) due() int64 {
	after := func(at int64, d time.Duration) int64 { return at + int64(d) }
	if s.failing != 0 {
		return after(s.triedAt, retry)
	}
	at := after(s.askedAt, beat)
	switch {
	case s.short() > 0 && len(s.permits) == 0:
		at = min(at, max(after(s.askedAt, hurry), s.retryAt))
	case s.short() > 0 || s.shortOfPlaces():
		at = min(at, max(after(s.askedAt, refill), s.retryAt))
	case s.register > max(s.inFlight, min(s.allow, s.inFlight+len(s.queue))):
		at = min(at, after(s.askedAt, giveUp))
	}
	return at
}

// nudge wakes the keeper if it should ask sooner than it thinks.
func (s *Shared) nudge(now int64) {
	if s.asking || s.closed || max(s.due(), now) >= s.next {
		return
	}
	s.next = math.MinInt64 // once is enough
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// SetLimit changes the limit on all nodes: the highest version holds, and of
// those that hold it the lowest limit. A lower one holds at once here, elsewhere
// when the permits given out before have gone or lapsed, within 0.3 s.
func (s *Shared) SetLimit(n Limit, how ...Change) {
	c := changed(how)
	n = n.clamp()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.version < s.how.version || n == s.own && c.version == s.how.version {
		return
	}
	now := s.now()
	from := s.own
	if s.rising != nil {
		from, _ = s.rising.at(now)
	}
	s.own, s.how, s.rising = n, c, newSlope(from, n, now, c.ramp)
	if s.heard && c.version >= s.version {
		if l := lower(n, s.limit); l != s.limit { // a higher one has to be allowed
			s.hold(l, now)
			s.permits, s.allow = nil, min(s.allow, max(l.Concurrency, s.inFlight))
		}
	}
	if s.share != nil {
		s.share = newShare(s.known(now), s.cfg.MaxNodes, now)
	}
	s.askedAt, s.retryAt = now-int64(beat), 0
	s.nudge(now)
	s.arm()
}

// hold takes over the limit that holds.
func (s *Shared) hold(l Limit, now int64) {
	if l.Rate != s.limit.Rate || l.Burst != s.limit.Burst {
		s.pace = s.pace.change(l, now)
	}
	s.limit = l
}

// known is the limit that this node divides while Redis is away.
func (s *Shared) known(now int64) Limit {
	l := s.own
	if s.rising != nil {
		if at, done := s.rising.at(now); !done {
			l = at
		}
	}
	switch {
	case !s.heard || s.how.version > s.version:
		return l
	case s.how.version == s.version:
		return lower(l, s.limit)
	}
	return s.limit
}

// Paused reports that permits rest for a reason that says nothing about how many
// there are: the cap has begun anew, or Redis does not answer and this node does
// not live on its share yet. Who measures how fast permits come has to begin again.
func (s *Shared) Paused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.share == nil && (!s.heard || s.failing != 0 || s.now() < s.restTo)
}

// Held is the limit that all nodes together hold to and its version, as Redis told
// it last; ok is false before that. The version is above that of SetLimit where
// another node has heard of a newer one first.
func (s *Shared) Held() (l Limit, version int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit, s.version, s.heard
}

// Limit is the limit in force, as far as this node knows.
func (s *Shared) Limit() Limit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.heard {
		return s.own
	}
	return s.limit
}

// Stats tells this node's part now.
func (s *Shared) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Waiting: len(s.queue), InFlight: s.inFlight, Granted: s.granted}
}

// Close leaves the cap and sends away whoever waits. Permits in hand lapse.
func (s *Shared) Close() {
	s.mu.Lock()
	again := s.closed
	s.shut()
	s.mu.Unlock()
	s.stop()
	s.done.Wait()
	if !again {
		s.stats.forget()
	}
}
