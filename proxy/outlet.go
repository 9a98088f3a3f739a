package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/proxy/spool"
)

// outlet makes a record durable: in the queue, or on this node's disk while
// the queue cannot take it (D12).
//
// Order per user: a record whose key is in the spool follows it there, also
// when the queue is back, and the spool hands on the records of a key in their
// order. So whoever waits for one ack before sending the next finds them worked
// in that order. A record that the queue may or may not have taken goes to the
// spool as well: it can arrive twice and is recognised by its id.
type outlet struct {
	pub     Publisher
	direct  direct       // the same, if it can be used without waiting; else nil
	spool   *spool.Spool // nil: none is configured
	dir     string       // of the spool
	timeout time.Duration
	again   spool.Publish
	hurry   chan struct{} // cuts the pause between two replays
	log     *zap.Logger
	now     func() time.Time

	// mu guards the breakers. There is one per topic, so that an account whose
	// topic is missing does not send the others' callbacks over the disk.
	mu   sync.Mutex
	open map[string]bool
	// opened is how many: while all is well, nobody takes the lock.
	opened atomic.Int32

	state *prometheus.GaugeVec
}

func newOutlet(c SpoolConfig, d Deps, reg prometheus.Registerer) (*outlet, error) {
	o := &outlet{pub: d.Publisher, direct: directOf(d.Publisher), timeout: c.PublishTimeout, log: d.Log, now: d.Now, open: map[string]bool{}, hurry: make(chan struct{}, 1)}
	if c.Dir == "" {
		return o, nil
	}
	s, err := spool.Open(spool.Options{Dir: c.Dir, MaxBytes: c.MaxBytes, Log: d.Log.Named("spool"), Now: d.Now})
	if err != nil {
		return nil, err
	}
	o.spool, o.dir = s, c.Dir
	m := newSpoolMetrics(s, d.Now)
	o.state = m.breaker
	o.again = replayer(d.Publisher, d.Topics, d.Now, m.deadLetters.Inc)
	reg.MustRegister(m, m.breaker, m.deadLetters)
	return o, nil
}

// put returns nil once the record is durable. An error means that nothing
// durable took it, as far as is known.
func (o *outlet) put(ctx context.Context, r kafka.Record) error {
	if o.spool == nil {
		_, err := o.pub.Publish(ctx, r)
		return err
	}
	held := o.spool.Holds(r.Topic, r.Key)
	if held || o.isOpen(r.Topic) {
		err := o.append(ctx, r)
		if err == nil || held || fault.KindOf(err) != fault.Unavailable {
			return err
		}
		// The spool is full or its disk is broken, and nothing of this user is in
		// it: the queue may be back.
		if e := o.publish(ctx, r); e != nil {
			return errors.Join(err, e)
		}
		return nil
	}
	return o.elsewhere(ctx, r, o.publish(ctx, r))
}

// elsewhere takes what the queue has not, because of err, to the spool.
func (o *outlet) elsewhere(ctx context.Context, r kafka.Record, err error) error {
	if err == nil || o.spool == nil || permanent(err) {
		return err
	}
	o.trip(r.Topic, err)
	if e := o.append(ctx, r); e != nil {
		return errors.Join(e, err)
	}
	return nil
}

// permanent tells that the queue will never take this record.
func permanent(err error) bool {
	k := fault.KindOf(err)
	return err != nil && (k == fault.Invalid || k == fault.Final)
}

// publish gives the queue its time, and leaves as much of the budget for the
// spool.
func (o *outlet) publish(ctx context.Context, r kafka.Record) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit(ctx))
	defer cancel()
	_, err := o.pub.Publish(ctx, r)
	if err == nil {
		o.mend(r.Topic)
	}
	return err
}

func (o *outlet) append(ctx context.Context, r kafka.Record) error {
	return o.spool.Append(ctx, spool.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers})
}

func (o *outlet) isOpen(topic string) bool {
	if o.opened.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open[topic]
}

// trip opens the topic's breaker: from now on its records go straight to the
// spool, so that nobody else waits for a queue that does not answer.
func (o *outlet) trip(topic string, cause error) {
	if o.set(topic, true) {
		o.log.Warn("the queue does not take callbacks; they are kept on disk until it does",
			zap.String("topic", topic), zap.String("kind", fault.KindOf(cause).String()), zap.Error(cause))
	}
}

func (o *outlet) mend(topic string) {
	if o.set(topic, false) {
		o.log.Info("the queue takes callbacks again", zap.String("topic", topic))
	}
}

// set changes a breaker and tells whether that was a change.
func (o *outlet) set(topic string, open bool) bool {
	if !open && o.opened.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[topic] == open {
		return false
	}
	if open {
		o.open[topic] = true
	} else {
		delete(o.open, topic)
	}
	o.opened.Store(int32(len(o.open)))
	if o.state != nil {
		v := 0.0
		if open {
			v = 1
		}
		o.state.WithLabelValues(topic).Set(v)
	}
	return true
}

// The pauses between two tries to replay while the queue is away: short at
// first, since most outages are, and never so long that its return goes
// unnoticed.
const (
	replayMin = 100 * time.Millisecond
	replayMax = 2 * time.Second
)

// replay hands the queue what is in the spool, whenever there is something,
// until ctx ends. It is the probe of the breakers too.
func (o *outlet) replay(ctx context.Context) {
	if o.spool == nil {
		return
	}
	pause := time.Duration(0)
	for o.await(ctx, pause) {
		before := o.spool.Stats()
		err := o.spool.Replay(ctx, o.republish)
		after := o.spool.Stats()
		switch {
		case err == nil:
			pause = 0
		case after.Replayed > before.Replayed:
			pause = replayMin
		default:
			pause = min(max(2*pause, replayMin), replayMax)
		}
	}
}

// await waits for something to replay, or for the pause to be over. False means
// that ctx has ended.
func (o *outlet) await(ctx context.Context, pause time.Duration) bool {
	more := o.spool.More()
	var over <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		more, over = nil, t.C
	}
	select {
	case <-more:
	case <-over:
	case <-o.hurry:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// republish closes the breaker once the queue has taken a record within the
// time that a live one has.
func (o *outlet) republish(ctx context.Context, r spool.Record) error {
	began := o.now()
	err := o.again(ctx, r)
	if err == nil && o.now().Sub(began) < o.timeout {
		o.mend(r.Topic)
	}
	return err
}

var errNoSpool = errors.New("no spool is configured (proxy.spool.dir)")

func (o *outlet) ready() error {
	if o.spool == nil {
		return errNoSpool
	}
	return o.spool.Ready()
}

func (o *outlet) close() error {
	if o.spool == nil {
		return nil
	}
	return o.spool.Close()
}
