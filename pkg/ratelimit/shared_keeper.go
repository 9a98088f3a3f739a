package ratelimit

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// keep asks Redis whenever it is of use, at least once a beat, until ctx ends;
// then it leaves.
func (s *Shared) keep(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		s.next = s.due()
		d := time.Duration(s.next - s.now())
		s.mu.Unlock()
		if d > 0 {
			timer.Reset(d)
			select {
			case <-ctx.Done():
			case <-s.kick:
			case <-timer.C:
			}
			continue
		}
		s.consult(ctx)
	}
	// Without this our places are free when their life ends.
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	s.mu.Lock()
	exchange := s.exchange
	s.mu.Unlock()
	_, _ = exchange(bye, question{node: s.node, leave: true})
}

// consult asks once and draws the consequences.
func (s *Shared) consult(parent context.Context) {
	// The time-out begins first: a question of a process that then stood still
	// must not leave.
	ctx, cancel := context.WithTimeout(parent, s.cfg.Timeout)
	defer cancel()
	s.mu.Lock()
	left := s.now()
	q := s.question(left)
	s.asking, s.askedAt = true, left
	exchange := s.exchange
	s.mu.Unlock()

	a, err := exchange(ctx, q)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking, s.triedAt = false, s.now()
	took := time.Duration(s.triedAt - left)
	switch {
	case err == nil && a.late && took <= s.cfg.Timeout:
		// It was in time by our clock, so theirs was put forward: that is said at once.
		s.put, s.askedAt = true, left-int64(beat)
	case err == nil && !a.late:
		s.learned(q, a, left)
	case parent.Err() == nil:
		s.failed(err, left)
	}
	s.arm()
}

// question says what this node has and needs. What it pledges bounds what begins
// until the answer is there, also if the answer never comes.
func (s *Shared) question(now int64) question {
	s.lapse(now)
	if now >= s.placesTo || s.share != nil {
		s.allow = 0
	}
	need := s.inFlight + len(s.queue)
	q := question{
		node: s.node, limit: s.own, how: s.how, want: min(len(s.queue)-len(s.permits), most), have: len(s.permits),
		flight: s.inFlight, places: need, pledge: max(s.inFlight, min(s.allow, need)),
	}
	q.want = max(q.want, 0)
	q.firsts, q.bulk = s.firsts(q.want), s.bulk
	// The question takes no longer than Timeout to be looked at, or it is too late.
	q.put, q.begun, q.latest = s.put, s.begun, s.serverAt+(now-s.leftAt+int64(s.cfg.Timeout+margin))/int64(time.Microsecond)
	s.allow = min(s.allow, q.pledge)
	return q
}

// learned takes an answer over.
func (s *Shared) learned(q question, a answer, left int64) {
	now := s.triedAt
	if s.share != nil {
		s.log.Info("permits are shared again", zap.String("cap", s.name))
	}
	s.failing, s.failedAt, s.share, s.put = 0, 0, nil, false
	s.stats.shared.Set(1)
	if !s.heard {
		s.pace = newGCRA(Limit{Rate: a.limit.Rate, Burst: a.limit.Burst, StartFull: true}, now)
		s.limit, s.heard = a.limit, true
	}
	s.version, s.begun, s.serverAt, s.leftAt = a.version, a.begun, a.now, left
	stale := q.how != s.how || q.limit != s.own // changed while the question was under way
	l := a.limit
	if stale && s.how.version >= a.version {
		l = lower(s.own, l)
	}
	s.hold(l, now)
	s.restTo = now + int64(a.rest)
	if a.empty {
		s.stats.empty.Inc()
	}
	if l.Concurrency > 0 {
		s.allow, s.register = a.allow, max(q.pledge, a.allow)
		life := int64(s.cfg.PlaceLife)
		s.placesTo = left + life - life/10
	} else {
		s.allow, s.register = 0, 0
	}
	if !stale {
		s.receive(a, left, now)
	}
	s.retryAt = 0
	if a.count < int64(q.want) && (a.wait > 0 || a.count == 0) {
		s.retryAt = now + int64(min(max(a.wait, askSoon), beat))
	}
}

// receive turns the server's slots into moments of our clock: never early, and
// never over later than they are, wherever within the round trip the server
// looked at its own.
func (s *Shared) receive(a answer, left, now int64) {
	if len(s.permits) == 0 {
		s.permits = nil // let the old array go
	}
	s.skew = s.ahead()
	for i := range a.count {
		slot := (a.slot(i) - a.now) * int64(time.Microsecond)
		p := permit{from: now + slot, until: left + slot + a.life*int64(time.Microsecond) - int64(margin)}
		if p.until < p.from {
			s.stats.lapsed.Inc() // the round trip took longer than a permit lives
			continue
		}
		s.permits = append(s.permits, p)
	}
}

// failed counts how long Redis is away, and then lives on the share. Each
// question without an answer shows for a while that it still is. Time during
// which this process stood still shows nothing.
func (s *Shared) failed(err error, left int64) {
	s.stats.failures.Inc()
	switch {
	case s.triedAt-left > int64(proof):
		s.failing = s.triedAt
	case s.failing == 0 || left-s.failedAt > int64(proof):
		s.failing = left
		s.log.Debug("no answer about permits", zap.String("cap", s.name), zap.Error(err))
	}
	s.failedAt = s.triedAt
	if s.triedAt-s.failing < int64(patience) {
		return
	}
	s.shareTo = left + int64(proof)
	if s.share == nil {
		s.permits, s.allow, s.register = nil, 0, 0
		s.share = newShare(s.known(s.triedAt), s.cfg.MaxNodes, s.triedAt)
		s.stats.shared.Set(0)
		s.log.Warn("Redis is away: this node takes its share of the cap", zap.String("cap", s.name),
			zap.Int("nodes", s.cfg.MaxNodes), zap.Bool("paused", s.share.paused), zap.Error(err))
	}
}
