package line

import (
	"context"
	"sync"
	"time"
)

// Name implements run.Service.
func (f *Fleet) Name() string { return "lines" }

// showEvery is how often it is shown which account uses which line.
const showEvery = time.Second

// Run looks at the lines until ctx ends, and closes their connections then.
func (f *Fleet) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, s := range f.lines {
		all.Go(func() { f.watch(ctx, s) })
	}
	t := time.NewTicker(showEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		f.showUse()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	all.Wait()
	return nil
}

// watch looks at one line: when it is time, when a request was lost on it, and
// never while answers come anyway.
func (f *Fleet) watch(ctx context.Context, s *state) {
	t := time.NewTicker(f.health.ProbeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
			f.probe(ctx, s)
		case <-t.C:
			if !s.fresh(f.now(), f.health.ProbeEvery) {
				f.probe(ctx, s)
			}
		}
	}
}

// fresh says that a look would tell nothing new.
func (s *state) fresh(now time.Time, every time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.health.heard) < every && s.health.state() == Up
}

// probe makes a connection of its own. Only whether that comes about says
// something about the line; whoever does not answer on it may be slow.
func (f *Fleet) probe(ctx context.Context, s *state) {
	bounded, cancel := context.WithTimeout(ctx, 3*f.health.ConnectTimeout)
	defer cancel()
	reached, err := s.probe.Reach(bounded)
	switch {
	case ctx.Err() != nil:
	case reached:
		f.met.probes.WithLabelValues(s.Name, "reached").Inc()
		f.answered(s)
	default:
		f.met.probes.WithLabelValues(s.Name, "unreached").Inc()
		f.unreached(s, err)
	}
}
