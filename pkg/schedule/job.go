package schedule

import (
	"context"
	"regexp"
	"time"

	"tidegate/pkg/fault"
)

// Policy is what becomes of a run that was begun and never ended, because its
// process died or was told to stop.
type Policy string

// The policies.
const (
	// Again begins the slot anew: right for a job whose effects may be repeated.
	Again Policy = "again"
	// Leave records it as interrupted, for a person to decide.
	Leave Policy = "leave"
)

const (
	// onTime is how late a slot may begin without being caught up; a leader that
	// died is followed within it.
	onTime = time.Minute
	// maxCatchUp bounds the window: what is older is not what anybody waits for.
	maxCatchUp   = 14 * 24 * time.Hour
	maxRetryWait = time.Hour
	maxRetries   = 20
)

// Retry bounds how often a job that fails is begun for one slot.
type Retry struct {
	Most int           // times that a slot is begun, the first included
	Wait time.Duration // before the second; it doubles up to an hour
}

// wait is the pause behind an attempt.
func (r Retry) wait(attempt int) time.Duration {
	d := r.Wait
	for i := 1; i < attempt && d < maxRetryWait; i++ {
		d *= 2
	}
	return min(d, maxRetryWait)
}

// Job is what is to be done, and when.
type Job struct {
	Name  string // the same on every node; it names the rows, so it stays
	About string // one sentence for people
	Spec  Spec
	// CatchUp is how late a slot may still begin after nobody could begin it; at
	// least a minute. Older slots are recorded as missed.
	CatchUp time.Duration
	// NewestOnly begins only the newest of several slots that wait; the others
	// are recorded as missed.
	NewestOnly bool
	// Timeout bounds one run.
	Timeout     time.Duration
	Retry       Retry
	Interrupted Policy
	// Do does the job. It ends when ctx does, which is also when this node no
	// longer leads; an error of kind fault.Invalid or fault.Final is not tried
	// again. Everything that depends on the time goes by Run.Slot, since a slot
	// may run late.
	Do func(ctx context.Context, r *Run) error
}

var jobName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// check finds what cannot work.
func (j Job) check() error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "check job "+j.Name, format, args...)
	}
	switch {
	case !jobName.MatchString(j.Name):
		return bad("%.60q is no name: use 1 to 40 of a-z, 0-9 and -", j.Name)
	case j.Spec.loc == nil:
		return bad("it has no schedule")
	case j.CatchUp < 0 || j.CatchUp > maxCatchUp:
		return bad("catch_up is %s: use 0s to %s", j.CatchUp, maxCatchUp)
	case j.Timeout < time.Second || j.Timeout > 24*time.Hour:
		return bad("timeout is %s: use 1s to 24h", j.Timeout)
	case j.Retry.Most < 1 || j.Retry.Most > maxRetries:
		return bad("attempts is %d: use 1 to %d", j.Retry.Most, maxRetries)
	case j.Retry.Wait < 0 || j.Retry.Wait > maxRetryWait:
		return bad("retry_wait is %s: use 0s to %s", j.Retry.Wait, maxRetryWait)
	case j.Interrupted != Again && j.Interrupted != Leave:
		return bad("a run that was interrupted needs a policy: %s or %s", Again, Leave)
	case j.Do == nil:
		return bad("it does nothing")
	}
	return nil
}

// window is how late a slot may begin.
func (j Job) window() time.Duration { return max(j.CatchUp, onTime) }
