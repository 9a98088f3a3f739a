package robot

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
	"tidegate/robot/engine"
)

// permits are what lines stand for (pkg/ratelimit).
type permits interface {
	Acquire(ctx context.Context, priority int) (release func(), err error)
	TryTake() bool
	Back()
}

// line is who waits for the permits of one account, back end or external engine. The more
// urgent level goes first, and within a level who came first.
//
// Refusing needs no control loop, so nothing swings: a callback is refused when
// those who go before it need more permits than its patience has, at the rate that
// is measured while the line stands (meter); and those who wait all the same leave
// when their patience is over. So permits are never idle while somebody waits,
// what is refused is always of the least urgent level that waits, and a line that
// is short again refuses nobody. It is a CoDel in that only a line that stands
// for a second is overload, and waiting time the signal.
type line struct {
	of       string // account, backend or engine
	name     string // for people
	permits  permits
	patience patience
	now      func() time.Duration // never 0, which says "not"
	gauges   [engine.Levels]prometheus.Gauge

	mu      sync.Mutex
	waiting perLevel
	meter   meter
}

func newLine(of, name string, p permits, pat patience, waiting *prometheus.GaugeVec) *line {
	begin := time.Now()
	l := &line{of: of, name: name, permits: p, patience: pat, now: func() time.Duration { return time.Since(begin) + 1 }}
	for i := range l.gauges {
		l.gauges[i] = waiting.WithLabelValues(name, engine.Level(i).String())
	}
	return l
}

// TryTake takes a permit if nobody stands in line and one is free. Then nobody is
// refused either, and there is nothing to measure.
func (l *line) TryTake() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting == (perLevel{}) && l.permits.TryTake()
}

// Back gives a permit of TryTake back.
func (l *line) Back() { l.permits.Back() }

// Acquire waits for a permit on behalf of the turn in ctx, whatever priority
// says: a retry, or a package between, takes it at the callback's level. The error
// is a refusal, an expiry, or what the permits say.
func (l *line) Acquire(ctx context.Context, _ int) (release func(), err error) {
	return l.acquire(ctx, turnOf(ctx))
}

func (l *line) acquire(ctx context.Context, t turn) (release func(), err error) {
	if err := l.enter(t.level); err != nil {
		return func() {}, err
	}
	wait, cancel := l.bound(ctx, t)
	defer cancel()
	release, err = l.permits.Acquire(wait, int(t.level))
	l.leave(t.level, err == nil)
	if err == nil || ctx.Err() != nil {
		return release, err
	}
	switch cause := context.Cause(wait); {
	case errors.Is(cause, errExpired):
		return release, errExpired
	case errors.Is(cause, errImpatient):
		return release, &refusal{line: l, why: "late"}
	}
	return release, err
}

// bound ends a wait when the patience of the turn's level is over, or when the
// callback has become too old.
func (l *line) bound(ctx context.Context, t turn) (context.Context, context.CancelFunc) {
	most := l.patience[t.level]
	if most == 0 && t.expires.IsZero() {
		return ctx, func() {}
	}
	impatient := time.Now().Add(most)
	return whenAsked(ctx, func(p context.Context) (context.Context, context.CancelFunc) {
		wait, cancel := p, context.CancelFunc(func() {})
		if most > 0 {
			wait, cancel = context.WithDeadlineCause(p, impatient, errImpatient)
		}
		if t.expires.IsZero() {
			return wait, cancel
		}
		wait, end := context.WithDeadlineCause(wait, t.expires, errExpired)
		return wait, func() { end(); cancel() }
	})
}

// refuses tells without waiting whether somebody of a level would be refused. No
// line refuses nobody.
func (l *line) refuses(level engine.Level) *refusal {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.judge(level)
}

func (l *line) judge(level engine.Level) *refusal {
	most := l.patience[level]
	if most == 0 {
		return nil
	}
	if rests(l.permits) && l.waiting != (perLevel{}) {
		l.meter.begin(l.now()) // what comes now says nothing about what will come
	}
	if d, ok := l.meter.wait(l.now(), l.waiting, level); ok && d > most {
		return &refusal{line: l, why: "wait"}
	}
	return nil
}

func (l *line) enter(level engine.Level) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.judge(level); r != nil {
		return r
	}
	if l.waiting == (perLevel{}) {
		l.meter.begin(l.now())
	}
	l.waiting[level]++
	l.gauges[level].Inc()
	return nil
}

func (l *line) leave(level engine.Level, permitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[level]--
	l.gauges[level].Dec()
	if permitted {
		l.meter.permit(l.now(), level)
	}
	if l.waiting == (perLevel{}) {
		l.meter.end()
	}
}

var (
	errImpatient = errors.New("its patience is over")
	errExpired   = fault.New(fault.Limited, "wait for a permit", "the callback is older than its rule allows")
)

// refusal is an error: a callback gets no turn because of overload.
type refusal struct {
	line *line
	why  string // wait, late or places
}

// label is the refusal in metrics.
func (r *refusal) label() string {
	if r.why == "places" {
		return r.why
	}
	return r.line.of + "_" + r.why
}

// Error says it for the row of the message.
func (r *refusal) Error() string {
	switch r.why {
	case "late":
		return "it waited for a permit of the " + r.line.name + " for longer than its level may"
	case "places":
		return "too many callbacks of the " + r.line.name + " wait already"
	}
	return "it would wait for a permit of the " + r.line.name + " for longer than its level may"
}

// turn is what a callback brings along wherever it waits.
type turn struct {
	level   engine.Level
	expires time.Time // no permit is taken after it; zero is no limit
}

type turnKey struct{}

func withTurn(ctx context.Context, t turn) context.Context {
	return context.WithValue(ctx, turnKey{}, &t)
}

// turnOf gives the turn of a call for a callback. What has none is not begun by
// somebody who waits.
func turnOf(ctx context.Context) turn {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		return *t
	}
	return turn{level: engine.Query}
}

// both are permits of two kinds; the second is waited for with the first in hand.
type both struct{ first, second permits }

// TryTake takes both or none.
func (b both) TryTake() bool {
	if !b.first.TryTake() {
		return false
	}
	if !b.second.TryTake() {
		b.first.Back()
		return false
	}
	return true
}

// Back gives both back.
func (b both) Back() {
	b.second.Back()
	b.first.Back()
}

// Acquire takes both or none.
func (b both) Acquire(ctx context.Context, priority int) (release func(), err error) {
	one, err := b.first.Acquire(ctx, priority)
	if err != nil {
		return one, err
	}
	two, err := b.second.Acquire(ctx, priority)
	if err != nil {
		one()
		return two, err
	}
	return func() { two(); one() }, nil
}
