package alarm

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/telemetry"
)

// Severity says how soon somebody must look.
type Severity string

// The severities.
const (
	Warning  Severity = "warning"  // within the working day
	Critical Severity = "critical" // now: users notice or will soon
)

// Alarm is one condition that holds.
type Alarm struct {
	// Name is the kind of condition, lower_snake_case and from the code, never
	// from outside: it is a metric label and an anchor of the runbook.
	Name string
	// Subject is what it is about, from configuration or bounded sets ("bank
	// callbacks/3"); no personal data. Name and Subject together are the identity.
	Subject  string
	Severity Severity
	// Text says in one sentence what is seen, with numbers, and what to do.
	Text string
	// TextZH is the same in Chinese; empty shows Text there too.
	TextZH string
	// Local says that the condition is this process's own (its disk, its
	// memory): each node tells it, and messages name the node. Others are told
	// once for all nodes that see them.
	Local bool
}

// Transition is an alarm that began or ended.
type Transition struct {
	Alarm
	Firing bool
	Since  time.Time // when it began
	At     time.Time // when this transition was seen
}

// Sink is told about transitions. It must not block: a board calls it under
// the caller's feet.
type Sink interface{ Tell(t Transition) }

// refresher is a Sink that keeps the words of what fires, to say them again
// later. It must not block either.
type refresher interface{ refresh(t Transition) }

// Board keeps what fires now. A nil Board takes everything and does nothing.
// It is safe for concurrent use.
type Board struct {
	log   *zap.Logger
	sinks []Sink
	now   func() time.Time
	gauge *prometheus.GaugeVec
	lost  prometheus.Counter

	mu     sync.Mutex
	firing map[id]Transition
	full   bool // it has been logged that there is no room
}

// maxFiring bounds the board. Names and subjects come from bounded sets, so
// only a mistake of ours gets there.
const maxFiring = 4096

type id struct{ name, subject string }

// NewBoard makes a board. now is nil for the real clock, reg nil keeps the
// metric unregistered.
func NewBoard(log *zap.Logger, reg prometheus.Registerer, now func() time.Time, sinks ...Sink) *Board {
	if now == nil {
		now = time.Now
	}
	b := &Board{
		log: log, sinks: sinks, now: now, firing: map[id]Transition{},
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_alarm_firing", Help: "Conditions that need a person now, by name; 0 after they ended.",
		}, []string{"name", "severity"}),
	}
	b.lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tidegate_alarm_no_room_total", Help: "Times that a condition was reported and not told, because too many fired.",
	})
	telemetry.Registerer(reg).MustRegister(b.gauge, b.lost)
	return b
}

// Fire says that the condition holds. Only the first time is told; later ones
// keep the text as it is now, for whoever asks and for what is said next.
func (b *Board) Fire(a Alarm) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := id{a.Name, a.Subject}
	if t, known := b.firing[key]; known {
		b.reword(key, t, a)
		return
	}
	if len(b.firing) >= maxFiring {
		b.lost.Inc()
		if !b.full { // rooms repeat themselves every second
			b.full = true
			b.log.Error("too many alarms fire; this one and others are not told until some end", zap.String("alarm", a.Name), zap.Int("firing", len(b.firing)))
		}
		return
	}
	now := b.now()
	t := Transition{Alarm: a, Firing: true, Since: now, At: now}
	b.firing[key] = t
	b.gauge.WithLabelValues(a.Name, string(a.Severity)).Inc()
	b.log.Warn("alarm", zap.String("alarm", a.Name), zap.String("subject", a.Subject),
		zap.String("severity", string(a.Severity)), zap.String("text", a.Text))
	b.tell(t)
}

// reword takes the newer text of an alarm that fires. Nobody is told.
func (b *Board) reword(key id, t Transition, a Alarm) {
	if a.Text == "" || a.Text == t.Text && a.TextZH == t.TextZH {
		return
	}
	t.Text, t.TextZH = a.Text, a.TextZH
	b.firing[key] = t
	for _, s := range b.sinks {
		if r, ok := s.(refresher); ok {
			r.refresh(t)
		}
	}
}

// Resolve says that the condition does not hold. It does nothing if it did not.
func (b *Board) Resolve(name, subject string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := id{name, subject}
	t, known := b.firing[key]
	if !known {
		return
	}
	delete(b.firing, key)
	b.full = false
	t.Firing, t.At = false, b.now()
	b.gauge.WithLabelValues(t.Name, string(t.Severity)).Dec()
	b.log.Info("alarm resolved", zap.String("alarm", name), zap.String("subject", subject), zap.Duration("after", t.At.Sub(t.Since)))
	b.tell(t)
}

func (b *Board) tell(t Transition) {
	for _, s := range b.sinks {
		s.Tell(t)
	}
}

// Firing lists what fires now, in no order.
func (b *Board) Firing() []Transition {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Transition, 0, len(b.firing))
	for _, t := range b.firing {
		out = append(out, t)
	}
	return out
}
