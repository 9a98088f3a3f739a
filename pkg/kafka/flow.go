package kafka

import "sync"

// flow pauses and resumes the fetch of one partition. It has a lock of its own,
// held while sarama is called, so that a pause and a resume which are decided at
// the same moment take effect in the order of their decisions.
type flow struct {
	mu     sync.Mutex
	closed bool
	pause  func()
	resume func()
}

// wantsPause says whether the fetch should rest. Between the marks it stays as
// it is. The caller holds the scheduler's lock.
func (s *scheduler) wantsPause(c *claim) bool {
	waiting := c.waiting - c.stuckWaiting // a stuck key must not stop the others
	if c.paused {
		return waiting > s.opt.QueueLow || c.bytes > s.opt.QueueBytes/2
	}
	return waiting >= s.opt.QueueHigh || c.bytes >= s.opt.QueueBytes
}

// regulate brings the fetch to what the queue asks for.
func (s *scheduler) regulate(c *claim) {
	f := &c.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	s.mu.Lock()
	want := s.wantsPause(c)
	change := want != c.paused
	c.paused = want
	s.mu.Unlock()
	if change && want {
		f.pause()
	} else if change {
		f.resume()
	}
}

// close ends the regulation: a pause that came later would hit the next claim
// of this partition in the same process.
func (f *flow) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.resume()
}
