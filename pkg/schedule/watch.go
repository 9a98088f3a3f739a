package schedule

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/lease"
)

// seen is what this node knows of the jobs' successes. Between two looks time
// goes on by the node's clock, corrected by what it was off at the last one.
type seen struct {
	now func() time.Time

	mu   sync.Mutex
	skew time.Duration
	of   map[string]progress
}

func (s *seen) put(job string, p progress, skew time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[job], s.skew = p, skew
}

// get gives it, and the time of the database.
func (s *seen) get(job string) (p progress, now time.Time, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known = s.of[job]
	return p, s.now().Add(-s.skew), known
}

// watch looks at what the jobs have achieved, on every node: one that leads
// nothing tells as well that nobody does.
func (s *Scheduler) watch(ctx context.Context) {
	every := seesPerPoll * s.o.Poll
	var met, away bool
	for {
		if err := s.see(ctx, &met); err != nil && ctx.Err() == nil {
			s.log.Debug("the jobs' successes could not be read", zap.Error(err))
		}
		_, _, err := lease.Current(ctx, s.o.Redis, leaseName(s.o.Team))
		if err != nil && !away && ctx.Err() == nil {
			s.log.Warn("Redis does not answer, so no node can lead: no scheduled job begins until it does", zap.Error(err))
		}
		away = err != nil
		for _, j := range s.jobs {
			if p, now, known := s.seen.get(j.Name); known && s.o.Overdue != nil {
				s.o.Overdue(j.Name, p.overdue(j.Spec, now), p.trouble)
			}
		}
		if !pause(ctx, every) {
			return
		}
	}
}

func (s *Scheduler) see(ctx context.Context, met *bool) error {
	ctx, cancel := context.WithTimeout(ctx, seeTimeout)
	defer cancel()
	now, err := s.o.Store.now(ctx)
	if err != nil {
		return err
	}
	skew := s.o.Now().Sub(now)
	s.met.skew.Set(skew.Seconds())
	for _, j := range s.jobs {
		if !*met {
			if err := s.o.Store.meet(ctx, j, now); err != nil {
				return err
			}
		}
		p, err := s.o.Store.progress(ctx, j.Name)
		if err != nil {
			return err
		}
		s.seen.put(j.Name, p, skew)
	}
	*met = true
	return nil
}
