package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/lease"
	"tidegate/pkg/redis"
	"tidegate/pkg/telemetry"
)

const (
	// pollEvery is how often the leader looks for what somebody asked for.
	pollEvery = time.Second
	// seesPerPoll is how many polls lie between a node's looks at what the jobs have
	// achieved; seeTimeout bounds one.
	seesPerPoll = 15
	seeTimeout  = 15 * time.Second
	maxJobs     = 100
)

// Options are what a scheduler works with; it closes none of it.
type Options struct {
	Config
	// Team names the nodes that share these jobs, for instance "receipts"; all
	// of them must know the same jobs.
	Team     string
	Node     string // names this process
	Jobs     []Job
	Store    *Store
	Redis    *redis.Client
	Log      *zap.Logger
	Registry prometheus.Registerer
	// Overdue is told of each job at every look, how long its next success is
	// late and what went wrong last; nil tells nobody.
	Overdue func(job string, late time.Duration, why string)
	Now     func() time.Time // this node's clock; nil: the real one
	Poll    time.Duration    // 0: a second
}

// Scheduler is one node's share in running the jobs.
type Scheduler struct {
	o    Options
	jobs []Job
	log  *zap.Logger
	met  *metrics
	seen seen
	poke chan struct{}
}

// New checks the jobs; nothing runs before Run.
func New(o Options) (*Scheduler, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Poll == 0 {
		o.Poll = pollEvery
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Team == "" || o.Node == "" || o.Store == nil || o.Redis == nil || len(o.Jobs) > maxJobs {
		return nil, fault.New(fault.Internal, "make scheduler", "it needs a team, a node, a store, redis and at most %d jobs", maxJobs)
	}
	s := &Scheduler{o: o, jobs: slices.Clone(o.Jobs), log: o.Log, poke: make(chan struct{}, 1)}
	names := map[string]bool{}
	for _, j := range s.jobs {
		if err := j.check(); err != nil {
			return nil, err
		}
		if names[j.Name] {
			return nil, fault.New(fault.Internal, "make scheduler", "two jobs are called %s", j.Name)
		}
		names[j.Name] = true
	}
	slices.SortFunc(s.jobs, func(a, b Job) int { return strings.Compare(a.Name, b.Name) })
	s.seen.now, s.seen.of = o.Now, map[string]progress{}
	reg := telemetry.Registerer(o.Registry)
	var err error
	if s.met, err = newMetrics(reg); err == nil {
		err = reg.Register(newAges(s))
	}
	if err != nil {
		return nil, fmt.Errorf("scheduled jobs: %w", err)
	}
	return s, nil
}

// Name implements run.Service.
func (s *Scheduler) Name() string { return "scheduled jobs" }

// Run takes its turn at leading until ctx ends, and then waits for the jobs
// under way. Nothing that is away ends it.
func (s *Scheduler) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.watch(ctx) })
	for ctx.Err() == nil {
		err := lease.Run(ctx, s.o.Redis, leaseName(s.o.Team), s.o.Lease, s.lead)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("this node stops leading the scheduled jobs; another one or it itself goes on", zap.Error(err))
		}
		pause(ctx, s.o.Poll)
	}
	return nil
}

// job finds a job by its name.
func (s *Scheduler) job(name string) (Job, error) {
	for _, j := range s.jobs {
		if j.Name == name {
			return j, nil
		}
	}
	return Job{}, fault.New(fault.NotFound, "find job", "there is no job %.60q here; GET /ops/v1/jobs lists them", name).WithField("name")
}

const (
	maxReason = 500
	maxBy     = 100
)

// CheckAsk refuses what Ask would refuse without looking at the rows.
func (s *Scheduler) CheckAsk(a Ask) error {
	if _, err := s.job(a.Job); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(a.Reason) == "":
		return fault.New(fault.Invalid, "run job "+a.Job, "reason: say why: whoever looks at the history has nothing else").WithField("reason")
	case len(a.Reason) > maxReason || len(a.By) > maxBy || !printable(a.Reason) || !printable(a.By):
		return fault.New(fault.Invalid, "run job "+a.Job, "reason: use at most %d bytes of text in one line", maxReason).WithField("reason")
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Ask has a job run soon, on the node that leads. It gives the run's id.
func (s *Scheduler) Ask(ctx context.Context, a Ask) (int64, error) {
	if err := s.CheckAsk(a); err != nil {
		return 0, err
	}
	id, err := s.o.Store.ask(ctx, a)
	if err == nil {
		s.wake()
	}
	return id, err
}

// wake has the leader look at once, if that is this node.
func (s *Scheduler) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// pause sleeps and reports false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// steppedDown tells that an error ends a leader's term.
func steppedDown(err error) bool {
	return errors.Is(err, ErrOvertaken) || errors.Is(err, lease.ErrLost) || errors.Is(err, errUnsure)
}

// errUnsure ends a term in which a run was or was not begun, and nobody works it:
// the next leader finds it under an older fence and decides.
var errUnsure = errors.New("it is not known whether the run was begun")
