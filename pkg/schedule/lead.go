package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/crash"
	"tidegate/pkg/fault"
	"tidegate/pkg/lease"
)

// purgeEvery is how often old rows are forgotten.
const purgeEvery = time.Minute

// leader is this node while it leads.
type leader struct {
	*Scheduler
	term
	valid func() bool
	until map[string]time.Time // the slot up to which each job is planned; none: ask the row
	swept time.Time

	all  sync.WaitGroup
	mu   sync.Mutex
	busy map[string]bool // jobs with a run under way
}

// lead begins what is due until ctx ends, which is when the lease does. A
// leader that cannot reach the database for as long as the lease lasts gives it
// up: another node may.
func (s *Scheduler) lead(ctx context.Context, l *lease.Lease) error {
	fence, err := s.o.Store.takeOver(ctx, s.o.Team, s.o.Node, l.Fence(), l.Renew)
	if err != nil {
		return err
	}
	ld := &leader{Scheduler: s, term: term{s.o.Store, s.o.Team, s.o.Node, fence}, valid: l.Valid, until: map[string]time.Time{}, busy: map[string]bool{}}
	s.met.leading.Set(1)
	defer s.met.leading.Set(0)
	s.log.Info("this node leads the scheduled jobs", zap.Int64("fence", fence))
	// Runs end with the term, and are waited for: none of them meets itself.
	ctx, cancel := context.WithCancel(ctx)
	defer ld.all.Wait()
	defer cancel()
	return ld.rounds(ctx)
}

func (l *leader) rounds(ctx context.Context) error {
	good := time.Now()
	adopted := false
	for {
		if !l.valid() {
			return lease.ErrLost
		}
		next := l.o.Poll
		err := l.adoptAll(ctx, &adopted)
		if err == nil {
			next, err = l.round(ctx)
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // whatever failed, it is the end
		}
		switch {
		case err == nil:
			good = time.Now()
			l.met.rounds.WithLabelValues("ok").Inc()
		case steppedDown(err) || time.Since(good) > l.o.Lease:
			l.met.rounds.WithLabelValues("failed").Inc()
			return err
		default:
			l.met.rounds.WithLabelValues("failed").Inc()
			l.log.Warn("the leader of the scheduled jobs could not look at what is due; it tries again", zap.Error(err))
		}
		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-l.poke:
		}
		t.Stop()
	}
}

// adoptAll decides once about what earlier leaders left.
func (l *leader) adoptAll(ctx context.Context, done *bool) error {
	if *done {
		return nil
	}
	now, err := l.s.now(ctx)
	if err != nil {
		return err
	}
	for _, j := range l.jobs {
		found, err := l.adopt(ctx, j, now)
		if err != nil {
			return err
		}
		for st := range found {
			l.count(j.Name, st, 1)
			l.log.Warn("a run was begun and never ended", zap.String("job", j.Name), zap.String("becomes", string(st)))
		}
	}
	*done = true
	return nil
}

// round plans and begins, and says when to look again.
func (l *leader) round(ctx context.Context) (time.Duration, error) {
	now, err := l.s.now(ctx)
	if err != nil {
		return 0, err
	}
	l.met.skew.Set(l.o.Now().Sub(now).Seconds())
	// Most rounds write nothing, and would not find out by that.
	if h, err := headOf(ctx, l.s.db, l.team); err != nil || h.fence != l.fence {
		return 0, cmp.Or(err, overtaken("leader of "+l.team))
	}
	next := l.o.Poll
	for _, j := range l.jobs {
		wait, err := l.tend(ctx, j, now)
		if err != nil {
			return 0, fmt.Errorf("tend job %s: %w", j.Name, err)
		}
		next = min(next, wait)
	}
	if since := now.Sub(l.swept); since > purgeEvery || since < 0 {
		l.swept = now
		for _, j := range l.jobs {
			if _, err := l.purge(ctx, j, l.o.Config, now); err != nil {
				return 0, fmt.Errorf("forget old runs of %s: %w", j.Name, err)
			}
		}
	}
	return next, nil
}

// tend plans one job and begins it if it is due. It gives the time until the
// job's next slot.
func (l *leader) tend(ctx context.Context, j Job, now time.Time) (time.Duration, error) {
	until, known := l.until[j.Name]
	next := j.Spec.Next(until)
	if !known || !next.IsZero() && !next.After(now) {
		p, err := l.plan(ctx, j, now)
		if err != nil {
			return 0, err
		}
		l.count(j.Name, Missed, float64(p.missed))
		l.until[j.Name] = p.until
		if p.more {
			return 0, l.beginDue(ctx, j, now)
		}
		next = j.Spec.Next(p.until)
	}
	if err := l.beginDue(ctx, j, now); err != nil || next.IsZero() {
		return l.o.Poll, err
	}
	// A slot that is passed already waits for a place: look at the usual pace.
	if wait := next.Sub(now); wait > 0 {
		return wait, nil
	}
	return l.o.Poll, nil
}

// beginDue begins the job's next row, unless one of its rows is under way.
func (l *leader) beginDue(ctx context.Context, j Job, now time.Time) error {
	if l.isBusy(j.Name) {
		return nil
	}
	if waits, err := l.s.waits(ctx, j.Name, now); err != nil || !waits {
		return err
	}
	r, missed, err := l.due(ctx, j, now)
	if err != nil {
		return err
	}
	l.count(j.Name, Missed, float64(missed))
	if r == nil {
		return nil
	}
	if !l.valid() {
		return lease.ErrLost
	}
	if err := l.begin(ctx, r, now); err != nil {
		if fault.KindOf(err) == fault.Ambiguous {
			err = errors.Join(err, errUnsure)
		}
		return err
	}
	crash.At("CP16")
	r.valid = l.valid
	l.setBusy(j.Name, true)
	l.all.Go(func() {
		defer l.wake()
		defer l.setBusy(j.Name, false)
		l.work(ctx, j, r)
	})
	return nil
}

func (l *leader) isBusy(job string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy[job]
}

func (l *leader) setBusy(job string, b bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy[job] = b
}

// count counts an outcome; an attempt that is followed by another is a retry.
func (l *leader) count(job string, st State, n float64) {
	outcome := string(st)
	if st == Due {
		outcome = "retry"
	}
	if n > 0 {
		l.met.runs.With(prometheus.Labels{"name": job, "outcome": outcome}).Add(n)
	}
}
