package schedule

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
)

// lastWord is how long a run that was told to stop may take to say so.
const lastWord = 2 * time.Second

// work does one attempt and writes down what became of it. ctx ends with the
// leader's term. Failing to write leaves the row as running: the next leader
// decides about it.
func (l *leader) work(ctx context.Context, j Job, r *Run) {
	log := l.log.With(zap.String("job", j.Name), zap.Time("slot", r.Slot), zap.Int("attempt", r.Attempt), zap.Int64("run", r.ID))
	log.Info("a scheduled job begins")
	began := time.Now()
	err := attempt(ctx, j, r)
	took := time.Since(began)
	l.met.seconds.WithLabelValues(j.Name).Observe(took.Seconds())
	e, werr := l.settle(ctx, j, r, err)
	switch {
	case werr != nil:
		log.Warn("what became of a scheduled job was not written down; the next leader decides about it", zap.NamedError("job_error", err), zap.Error(werr))
		return
	case e.state == Done:
		log.Info("a scheduled job is done", zap.Duration("took", took))
	case e.state == Due:
		log.Warn("a scheduled job did not succeed; it is tried again", zap.Time("at", e.due), zap.Error(err))
	default:
		log.Error("a scheduled job did not succeed and is given up", zap.String("becomes", string(e.state)), zap.Error(err))
	}
	l.count(j.Name, e.state, 1)
}

// attempt runs the job within its time. A panic is an error like any other: one
// bad job must not stop the others.
func attempt(ctx context.Context, j Job, r *Run) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.Timeout, fmt.Errorf("it took longer than %s", j.Timeout))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v; %s", p, debug.Stack())
		}
	}()
	if err = j.Do(ctx, r); err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return err
}

// settle writes the ending, again and again while the database is away, as long
// as this node leads. When the term ends first, or its end is what the job came
// upon, the run was interrupted unless it has succeeded; that is said once more, briefly, if the lease still stands.
func (l *leader) settle(ctx context.Context, j Job, r *Run, err error) (e ending, werr error) {
	if r.completed {
		return ending{state: Done}, nil
	}
	for {
		stopping := ctx.Err() != nil
		write, cancel := ctx, context.CancelFunc(func() {})
		if stopping {
			write, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastWord)
		}
		var now time.Time
		if now, werr = l.s.now(write); werr == nil {
			e = j.ended(r.Attempt, err, now)
			if err != nil && (stopping || steppedDown(err)) {
				e = j.interrupted(r.Attempt, "told to stop: "+errorText(err), now)
			}
			werr = l.finish(write, r, e)
		}
		cancel()
		if werr == nil || steppedDown(werr) || stopping {
			return e, werr
		}
		pause(ctx, l.o.Poll)
	}
}
