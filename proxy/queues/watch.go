package queues

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/kafka"
	"tidegate/pkg/telemetry"
)

// Spooled is what this node keeps on disk for the queue.
type Spooled struct {
	Records, Bytes int64
	Oldest         time.Time
	Topics         map[string]int64 // records by topic
}

// Deps is what a Watch works with.
type Deps struct {
	// Admin asks the queue. Give the watch one of its own: a question to a queue
	// that hangs would hold up others behind it.
	Admin    *kafka.Admin
	Names    Names
	Spool    func() Spooled // nil: there is none
	Alarms   *alarm.Board   // nil tells nobody
	Log      *zap.Logger
	Registry prometheus.Registerer
	Now      func() time.Time // nil is the real clock
	// Threshold is the time to drain from which on the door tells followers.
	Threshold time.Duration
}

// How often what changes seldom is asked again.
const (
	shapeEvery  = time.Minute      // partition counts and retention
	lookEvery   = 10 * time.Second // topics that were missing
	ownersEvery = 5 * time.Second
	maxPause    = 30 * time.Second
)

// Watch measures the queues. Check and Run are for one goroutine; everything
// else is safe for concurrent use.
type Watch struct {
	cfg Config
	d   Deps
	now func() time.Time

	queues atomic.Pointer[[]Queue]
	view   atomic.Pointer[View]
	loads  atomic.Pointer[loads]
	failed prometheus.Counter

	// What follows belongs to the goroutine that checks.
	sets     map[Queue]*set
	known    *[]Queue // the list that shape was asked for
	shape    map[string]kafka.TopicInfo
	shapedAt time.Time
	owners   map[string]kafka.Owners
	ownedAt  time.Time
	fired    map[alarmID]bool
	away     bool
}

// New makes a watch over the queues of some accounts.
func New(cfg Config, accounts []string, d Deps) (*Watch, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Watch{cfg: cfg, d: d, now: d.Now, sets: map[Queue]*set{}, failed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tidegate_queue_polls_failed_total", Help: "Measurements of the queues that failed.",
	})}
	if w.now == nil {
		w.now = time.Now
	}
	w.view.Store(&View{Poll: cfg.Poll.Seconds(), Window: cfg.Window.Seconds(), DepthMode: cfg.DepthMode})
	w.SetAccounts(accounts)
	telemetry.Registerer(d.Registry).MustRegister(w.failed, &collector{w})
	return w, nil
}

// SetAccounts replaces the accounts; the next check measures them.
func (w *Watch) SetAccounts(accounts []string) {
	list := w.d.Names.Of(accounts)
	w.queues.Store(&list)
}

func (w *Watch) spool() Spooled {
	if w.d.Spool == nil {
		return Spooled{}
	}
	return w.d.Spool()
}

// Run checks until ctx ends. A check that is under way then is left to its
// time-outs.
func (w *Watch) Run(ctx context.Context) {
	for {
		began := time.Now()
		err := w.Check(ctx)
		t := time.NewTimer(w.pause(time.Since(began), err))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// pause keeps the watch from being busy for more than a fifth of the time, and
// measurements close enough for the window. After a failure, whose time was
// spent waiting, it is one poll.
func (w *Watch) pause(took time.Duration, err error) time.Duration {
	if err != nil {
		return w.cfg.Poll
	}
	return max(w.cfg.Poll-took, min(4*took, w.cfg.Window/4, maxPause))
}

// Check measures once and draws the conclusions. An error means that the queue
// did not answer: everything stays as it was.
func (w *Watch) Check(ctx context.Context) error {
	now := w.now()
	err := w.measure(ctx, now)
	if ctx.Err() != nil {
		return err
	}
	w.noteAway(err)
	if err != nil {
		w.failed.Inc()
		v := *w.view.Load()
		v.Error = err.Error()
		w.view.Store(&v)
		return err
	}
	var wanted []alarm.Alarm
	for _, q := range *w.known {
		s := w.sets[q]
		s.judge(w.cfg, w.shape[q.Topic], now)
		wanted = append(wanted, s.wanted()...)
	}
	w.fired = tell(w.d.Alarms, w.fired, wanted)
	w.show(now)
	return nil
}

func (w *Watch) measure(ctx context.Context, now time.Time) error {
	if err := w.reshape(ctx, now); err != nil {
		return err
	}
	standings, err := w.d.Admin.Survey(ctx, w.readings())
	if err != nil {
		w.shapedAt = time.Time{} // a topic may be gone
		return err
	}
	w.askOwners(ctx, now)
	byGroup := make(map[string]kafka.Standing, len(standings))
	for _, st := range standings {
		byGroup[st.Group] = st
	}
	for _, q := range *w.known {
		s := w.sets[q]
		s.take(byGroup[q.Group], now)
		o, ok := w.owners[q.Group]
		s.hold(o, ok)
	}
	w.readTimes(ctx, now)
	return nil
}

// reshape learns which topics exist, with how many partitions, and follows the
// accounts.
func (w *Watch) reshape(ctx context.Context, now time.Time) error {
	list := w.queues.Load()
	missing := false
	for _, q := range *list {
		missing = missing || !w.shape[q.Topic].Exists
	}
	age := now.Sub(w.shapedAt)
	if w.known == list && age < shapeEvery && (!missing || age < lookEvery) {
		return nil
	}
	seen := map[string]bool{}
	var topics []string
	for _, q := range *list {
		if !seen[q.Topic] {
			seen[q.Topic] = true
			topics = append(topics, q.Topic)
		}
	}
	infos, err := w.d.Admin.DescribeTopics(ctx, topics)
	if err != nil {
		return err
	}
	w.shape = make(map[string]kafka.TopicInfo, len(infos))
	for _, t := range infos {
		w.shape[t.Name] = t
	}
	w.shapedAt, w.known = now, list
	sets := make(map[Queue]*set, len(*list))
	for _, q := range *list {
		if sets[q] = w.sets[q]; sets[q] == nil {
			sets[q] = newSet(q, w.cfg)
		}
	}
	w.sets = sets
	return nil
}

func (w *Watch) readings() []kafka.Reading {
	var out []kafka.Reading
	index := map[string]int{}
	for _, q := range *w.known {
		t := w.shape[q.Topic]
		if !t.Exists {
			continue
		}
		i, ok := index[q.Group]
		if !ok {
			i = len(out)
			index[q.Group] = i
			out = append(out, kafka.Reading{Group: q.Group, Topics: map[string]int32{}})
		}
		out[i].Topics[q.Topic] = t.Partitions
	}
	return out
}

// askOwners asks who holds what; without an answer nothing is known about it.
func (w *Watch) askOwners(ctx context.Context, now time.Time) {
	if now.Sub(w.ownedAt) < ownersEvery {
		return
	}
	seen := map[string]bool{}
	var groups []string
	for _, q := range *w.known {
		if !seen[q.Group] {
			seen[q.Group] = true
			groups = append(groups, q.Group)
		}
	}
	owners, err := w.d.Admin.Owners(ctx, groups)
	if err != nil {
		w.d.Log.Debug("who reads the queues is not known", zap.Error(err))
	}
	w.owners, w.ownedAt = owners, now
}

// readTimes has the broker search when heads were written whose age is not known
// closely enough.
func (w *Watch) readTimes(ctx context.Context, now time.Time) {
	var places []kafka.Place
	wants := map[kafka.Place][]*partition{}
	for _, q := range *w.known {
		for _, p := range w.sets[q].partitions {
			if !p.seen.Equal(now) || !p.vague(now, w.cfg.Poll) {
				continue
			}
			at := kafka.Place{Topic: q.Topic, Partition: p.lag.Partition, Offset: p.head()}
			if wants[at] == nil {
				places = append(places, at)
			}
			wants[at] = append(wants[at], p)
		}
	}
	times, err := w.d.Admin.WrittenAt(ctx, places, now)
	if err != nil {
		w.d.Log.Debug("the age of some queues is not known", zap.Error(err))
	}
	for at, written := range times {
		for _, p := range wants[at] {
			p.ends.read(at.Offset, written)
		}
	}
}

func (w *Watch) noteAway(err error) {
	switch {
	case err != nil && !w.away:
		w.d.Log.Warn("the queues cannot be measured; what is shown is what was last known", zap.Error(err))
	case err == nil && w.away:
		w.d.Log.Info("the queues are measured again")
	}
	w.away = err != nil
}

// stale tells that the last good measurement is older than it should be.
func (w *Watch) stale(now time.Time) bool {
	at := w.view.Load().SampledAt
	return now.Sub(at) > w.cfg.Window/4+3*w.cfg.Poll
}

// show publishes what was found.
func (w *Watch) show(now time.Time) {
	old := w.view.Load()
	v := &View{SampledAt: now, Poll: old.Poll, Window: old.Window, DepthMode: old.DepthMode}
	for _, q := range *w.known {
		v.Queues = append(v.Queues, w.sets[q].view(now, !w.shape[q.Topic].Exists))
	}
	w.view.Store(v)
	w.loads.Store(w.loadsNow(now))
}
