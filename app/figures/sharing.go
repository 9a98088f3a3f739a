package figures

import (
	"sync"
	"time"
)

// sharing is a back end that works on all of its transactions at once, as a
// machine with a fixed number of processors does: up to capacity of them each at
// full speed, beyond it sharing, and losing loss of the work for each whole
// capacity too many (switching, locks, caches). With capacity 100 and work of
// 0.25 s, 200 at once take 0.50 s each without loss and 0.75 s with a loss of 0.5.
//
// It keeps a clock of work done per transaction: what comes at clock c ends at
// c + work, so the one that came first ends first, and only its end needs a timer.
type sharing struct {
	work     time.Duration
	capacity int
	loss     float64

	mu    sync.Mutex
	clock float64 // seconds of work that each transaction has had
	at    time.Time
	jobs  []*job
	timer *time.Timer
	peak  int
}

type job struct {
	ends float64 // on the clock
	done chan struct{}
}

func newSharing(work time.Duration, capacity int, loss float64) *sharing {
	return &sharing{work: work, capacity: capacity, loss: loss, at: time.Now()}
}

// begin takes a transaction; the channel is closed when it is done.
func (s *sharing) begin() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	j := &job{ends: s.clock + s.work.Seconds(), done: make(chan struct{})}
	s.jobs = append(s.jobs, j)
	s.peak = max(s.peak, len(s.jobs))
	s.plan()
	return j.done
}

// speed is how much of a second's work each of n gets done in a second.
func (s *sharing) speed(n int) float64 {
	over := float64(n) / float64(s.capacity)
	if over <= 1 {
		return 1
	}
	return 1 / over / (1 + s.loss*(over-1))
}

// advance moves the clock to now, from end to end of a transaction, since each
// end makes the others faster.
func (s *sharing) advance() {
	now := time.Now()
	left := now.Sub(s.at).Seconds()
	s.at = now
	for len(s.jobs) > 0 {
		first, speed := s.jobs[0], s.speed(len(s.jobs))
		need := (first.ends - s.clock) / speed
		if need > left {
			s.clock += left * speed
			return
		}
		left -= max(need, 0)
		s.clock = max(s.clock, first.ends)
		close(first.done)
		s.jobs = s.jobs[1:]
	}
}

// plan sets the timer to the next end.
func (s *sharing) plan() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if len(s.jobs) == 0 {
		return
	}
	left := (s.jobs[0].ends - s.clock) / s.speed(len(s.jobs))
	s.timer = time.AfterFunc(time.Duration(left*float64(time.Second))+time.Microsecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.advance()
		s.plan()
	})
}

// busiest is the largest number of transactions at once.
func (s *sharing) busiest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}
