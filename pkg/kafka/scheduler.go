package kafka

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// scheduler shares the workers over all partitions of a member. Workers take
// turns over the partitions that have something to do, and within a partition
// over its keys. A key that waits for a retry occupies no worker.
type scheduler struct {
	opt GroupOptions
	log *zap.Logger
	met *groupMetrics

	watch *watch

	mu      sync.Mutex
	work    *sync.Cond
	ring    fifo[*claim] // claims with ready lanes
	claims  map[*claim]struct{}
	stopped bool
}

func newScheduler(opt GroupOptions, log *zap.Logger, met *groupMetrics) *scheduler {
	s := &scheduler{opt: opt, log: log, met: met, claims: make(map[*claim]struct{})}
	s.work = sync.NewCond(&s.mu)
	s.watch = newWatch(opt.Workers, opt.SessionTimeout, opt.heartbeat(), func(time.Duration) { s.cutOff(nil) })
	return s
}

// start runs the workers; the returned function ends them after their present
// call and waits for that, unless it is told to leave those that hang.
func (s *scheduler) start() (stop func(leave bool)) {
	var wg sync.WaitGroup
	s.mu.Lock()
	s.stopped = false
	s.mu.Unlock()
	for i := range s.opt.Workers {
		wg.Go(func() {
			for {
				l := s.take()
				if l == nil {
					return
				}
				err := s.call(i, l)
				s.watch.running[i].Store(nil)
				s.finish(l, err)
			}
		})
	}
	return func(leave bool) {
		s.mu.Lock()
		s.stopped = true
		s.work.Broadcast()
		s.mu.Unlock()
		if !leave {
			wg.Wait()
		}
	}
}

// take waits for the next lane to run and begins its records; nil means stop.
func (s *scheduler) take() *lane {
	l, change := s.next()
	if change { // what is begun waits no more, so the fetch may go on
		s.regulate(l.claim)
	}
	return l
}

func (s *scheduler) next() (l *lane, change bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ring.len() == 0 {
		if s.stopped {
			return nil, false
		}
		s.work.Wait()
	}
	c := s.ring.pop()
	l = c.ready.pop()
	if c.inRing = c.ready.len() > 0; c.inRing {
		s.ring.push(c)
	}
	s.begin(l)
	c.inFlight++
	return l, s.wantsPause(c) != c.paused
}

// call runs the handler on a lane's current records, which nobody else touches
// while the lane is queued. The watch sees it as long as it runs.
func (s *scheduler) call(worker int, l *lane) (err error) {
	c := l.claim
	defer func() {
		if p := recover(); p != nil {
			s.met.panics.WithLabelValues(s.met.group, c.topic).Inc()
			err = fault.New(fault.Internal, "handle record", "panic: %s", kindOfPanic(p))
			if l.fails == 0 {
				s.log.Error("handler panicked, holding the key", zap.String("topic", c.topic), zap.Int32("partition", c.partition),
					zap.Int64("offset", l.current[0].rec.Offset), zap.String("panic", kindOfPanic(p)), zap.ByteString("stack", debug.Stack()))
			}
		}
	}()
	now := s.watch.now()
	it := &call{Context: c.ctx, tries: l.fails + 1, first: l.first, claim: c, offset: l.current[0].rec.Offset, began: now, watch: s.watch}
	it.quiet.Store(now)
	s.watch.running[worker].Store(it)
	if s.opt.Batch == nil {
		return s.opt.Handler(it, l.current[0].rec)
	}
	batch := make([]Record, len(l.current))
	for i, it := range l.current {
		batch[i] = it.rec
	}
	return s.opt.Batch(it, batch)
}

// kindOfPanic prints runtime errors, whose text is ours, and only the type of
// anything else: a panic value may carry a message body.
func kindOfPanic(p any) string {
	if e, ok := p.(interface{ RuntimeError() }); ok {
		return fmt.Sprint(e)
	}
	return fmt.Sprintf("%T", p)
}

// finish books the result of a handler call.
func (s *scheduler) finish(l *lane, err error) {
	c := l.claim
	n := float64(len(l.current))
	s.mu.Lock()
	c.inFlight--
	l.queued = false
	var logIt *zap.Logger
	switch {
	case c.gone: // abandoned: somebody else works these records now
	case err == nil:
		s.succeed(l)
	default:
		if c.ctx.Err() == nil { // else it was told to stop, and the record goes to the next owner
			logIt = s.shouldReport(l)
		}
		s.hold(l, s.retryIn(l, err))
	}
	change := s.wantsPause(c) != c.paused
	c.rest()
	s.mu.Unlock()

	if err == nil {
		c.processed.Add(n)
	} else {
		s.met.retries.WithLabelValues(s.met.group, c.topic).Inc()
	}
	if logIt != nil {
		logIt.Warn("record failed, its key is held and tried again", zap.Error(err))
	}
	if change {
		s.regulate(c)
	}
}

// retryIn is the pause before the next try: ours, or what the error asks for.
func (s *scheduler) retryIn(l *lane, err error) time.Duration {
	return max(pause(s.opt.RetryMin, s.opt.RetryMax, l.fails), min(fault.RetryAfter(err), time.Minute))
}

// shouldReport gives the logger for a failure worth a line: the first of a key,
// then one a minute while it lasts. The key itself is personal data.
func (s *scheduler) shouldReport(l *lane) *zap.Logger {
	if time.Since(l.logged) < time.Minute {
		return nil
	}
	l.logged = time.Now()
	c := l.claim
	return s.log.With(zap.String("topic", c.topic), zap.Int32("partition", c.partition),
		zap.Int64("offset", l.current[0].rec.Offset), zap.Int("tries", l.fails+1))
}

func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}
