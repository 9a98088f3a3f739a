package robot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/crash"
	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/robot/backend"
	"tidegate/robot/engine"
	"tidegate/robot/suspect"
)

// handle is the whole life of one record. It returns nil only when everything
// that the record causes is durable.
func (r *Robot) handle(ctx context.Context, m *member, rec kafka.Record) error {
	at := placeOf(rec)
	j := &job{}
	defer r.suspects.Done(&j.hand)
	o := r.pending.take(at)
	if o == nil {
		var err error
		if o, err = r.safely(ctx, m, rec, j); err != nil {
			return err
		}
	}
	if o == nil {
		r.holds.drop(at)
		r.m.callbacks.WithLabelValues(m.name, "seen").Inc()
		return nil
	}
	if err := r.settle(ctx, o); err != nil {
		if ctx.Err() == nil {
			r.pending.keep(at, o)
		}
		return err
	}
	r.holds.drop(at)
	r.remember(ctx, o)
	m.tally.settled(o, r.d.Now())
	if o.identity != "" {
		r.recent.add(rec, o.identity)
	}
	if r.arrivals.late(rec, o.callback) {
		r.m.breaks.WithLabelValues(m.name).Inc()
	}
	return nil
}

// job is what the work on one record needs, in one piece of memory.
type job struct {
	hand   suspect.Hand
	seat   seat
	errand errand
}

// errNotBegun says that a record was left as it was.
var errNotBegun = errors.New("left to the next reader of the partition")

// safely works a record and turns what our own code got wrong, a panic
// included, into a dead letter: a bug must not hold a follower for ever.
func (r *Robot) safely(ctx context.Context, m *member, rec kafka.Record, j *job) (o *outcome, err error) {
	defer func() {
		p := recover()
		if p == nil && (err == nil || errors.Is(err, errNotBegun)) {
			return
		}
		why := fmt.Errorf("a bug in the robot: panic: %T", p)
		if p == nil {
			why = fmt.Errorf("a bug in the robot: %w", err)
		}
		m.log.Error("callback becomes a dead letter, please report this", zap.Int32("partition", rec.Partition), zap.Int64("offset", rec.Offset), zap.Error(why), zap.Stack("stack"))
		o, err = r.unreadable(rec, why)
	}()
	return r.work(ctx, m, rec, j)
}

// work decides what becomes of a record. A nil outcome says that this process
// has finished the callback already. errNotBegun means that the robot stops or
// that the partition is lost: nothing has been decided, and whoever reads the
// record next begins anew.
func (r *Robot) work(ctx context.Context, m *member, rec kafka.Record, j *job) (*outcome, error) {
	c, err := r.read(rec)
	if err != nil {
		m.log.Error("callback cannot be read, it becomes a dead letter", zap.Int32("partition", rec.Partition), zap.Int64("offset", rec.Offset), zap.Error(err))
		return r.unreadable(rec, err)
	}
	rules := *r.rules.Load()
	switch {
	case r.recent.seen(rec, c.IdentityHash):
		return nil, nil
	case c.Quarantined != "":
		return r.quarantined(m, rec, c)
	case c.Answered != "":
		if err := r.leave(ctx, rec, c, rules); err != nil {
			return nil, fmt.Errorf("%w: callback %s: %w", errNotBegun, c.ID, err)
		}
		return r.compose(m, rec, c, verdict{state: wire.Answered, detail: "rule " + c.Answered + ", in the acknowledgement"})
	}
	s := &j.seat
	if err := r.sit(ctx, rec, c, s, asksWhere(rules, c)); err != nil {
		return nil, fmt.Errorf("%w: callback %s: %w", errNotBegun, c.ID, err)
	}
	if s.seen() {
		return nil, nil
	}
	asked := time.Now()
	terms := termsOf(rules, c, s)
	s.wants = terms.Wants
	t, stay, err := r.admit(ctx, m, c, terms)
	if v, ok := r.turnedAway(m, terms, err); ok {
		return r.compose(m, rec, c, v)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: callback %s: %w", errNotBegun, c.ID, err)
	}
	defer stay.end()
	began := time.Now()
	m.tally.turned(terms.Level, c, asked, began)
	if err := r.begin(ctx, rec, &j.hand); err != nil {
		return nil, fmt.Errorf("%w: callback %s: %w", errNotBegun, c.ID, err)
	}
	var v verdict
	if j.hand.Condemned > 0 {
		v = r.killer(j.hand.Condemned)
	} else {
		j.errand.send(ctx, r.cfg.MaxAge, t)
		v = r.judge(&j.errand, m, c, terms, rules, s)
	}
	if v.hold != nil {
		return nil, fmt.Errorf("%w: callback %s: %w", errNotBegun, c.ID, v.hold)
	}
	m.tally.worked.Observe(time.Since(began).Seconds())
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: callback %s: %w", errNotBegun, c.ID, ctx.Err())
	}
	if v.cause != "" {
		r.m.failures.WithLabelValues(m.name, v.cause).Inc()
		m.log.Warn("callback could not be worked as its rule says", zap.String("callback", c.ID), zap.String("user", r.d.Hasher.OpenID(c.OpenID)),
			zap.String("rule", v.rule), zap.String("state", string(v.state)), zap.String("reason", v.reason))
	}
	return r.compose(m, rec, c, v)
}

// verdict is what became of the work on one callback.
type verdict struct {
	rule     string
	replies  []wire.Content
	class    string
	validFor time.Duration
	state    wire.State
	reason   string
	detail   string
	cause    string // kind of a failure, for metrics; "" if there was none
	dead     string // why the record must be kept as a dead letter, or ""
	hold     error  // why it cannot be decided now, or nil
	calls    []wire.Step
}

// judge runs the engine and the back end within the errand. It never panics and
// never fails: failure is a verdict.
func (r *Robot) judge(ctx *errand, m *member, c *wire.Callback, terms engine.Terms, rules Engine, s *seat) (v verdict) {
	defer ctx.end()
	var calls []wire.Step
	defer func() { v.calls = calls }()
	d := engine.Decision{Fallback: rules.Fallback(), Class: wire.PreferDuplicate, ValidFor: engine.DefaultValidFor}
	defer func() {
		if p := recover(); p != nil {
			// The value of a panic may quote a message; its type does not.
			v = failed(d, wire.Dead, "panic", fmt.Sprintf("panic: %T", p))
			v.dead = v.reason
		}
	}()
	crash.At("CP8")
	d, err := r.decide(ctx, rules, c, s)
	if err == nil && d.Call != nil {
		began := r.d.Now()
		err = r.ask(ctx, c, &d)
		calls = append(calls, r.called(began, "back end "+d.Call.Backend, err))
	}
	if err == nil && d.Ask != nil {
		began := r.d.Now()
		err = r.askEngine(ctx, c, &d, s)
		calls = append(calls, r.called(began, "engine "+d.Ask.Engine, err))
	}
	if err == nil && d.Bot != "" {
		began := r.d.Now()
		err = r.askBot(ctx, c, &d)
		calls = append(calls, r.called(began, "bot "+d.Bot, err))
	}
	if back := r.putBack(ctx, c, s, &d, err); back != nil {
		return verdict{hold: back}
	}
	if v, ok := r.turnedAway(m, terms, err); ok {
		return v
	}
	switch {
	case errors.Is(err, errHold):
		return verdict{hold: err}
	case err != nil && ctx.Err() != nil:
		return failed(d, wire.Dead, "max_age", "the work took longer than max_age "+r.cfg.MaxAge.String())
	case err != nil:
		return failed(d, wire.Answered, fault.KindOf(err).String(), err.Error())
	}
	return done(d)
}

// ask calls the back end of a decision and renders its answer.
func (r *Robot) ask(ctx context.Context, c *wire.Callback, d *engine.Decision) error {
	b := r.backends[d.Call.Backend]
	if b == nil {
		return fault.New(fault.Internal, "call back end "+d.Call.Backend, "it is not configured")
	}
	// The back end may take its time, up to the end of ctx: all of its tries and
	// their pauses lie within max_age.
	kafka.Alive(ctx, r.cfg.MaxAge)
	defer kafka.Alive(ctx, 0)
	answer, note, err := r.call(ctx, b, c, d.Call, backend.Request{
		Method: d.Call.Method, Path: d.Call.Path, Body: d.Call.Body, Timeout: d.Call.Timeout, Key: actionOf(c), Trace: c.TraceParent,
		Before: func() error { return kafka.Owned(ctx) },
	})
	if err == nil {
		err = d.Render(answer)
	}
	if note != "" {
		d.Notes = append(d.Notes, note)
	}
	return err
}

// actionOf names what the user did, for systems that must do it once: a replay
// of a callback is the same action.
func actionOf(c *wire.Callback) string { return cmp.Or(c.ReplayOf, c.ID) }

// failed is the verdict on work that went wrong: the fallback text, if there
// is one. Without a text nobody was answered, whatever state was meant.
func failed(d engine.Decision, state wire.State, cause, reason string) verdict {
	v := verdict{rule: d.Rule, class: d.Class, validFor: d.ValidFor, state: state, cause: cause, reason: reason, detail: detail(d)}
	if d.Fallback == "" {
		v.state = wire.Dead
		return v
	}
	v.replies = []wire.Content{{Type: "text", Text: d.Fallback}}
	if v.state == wire.Answered {
		v.reason = "fallback text: " + reason
	}
	return v
}

// done is the verdict on work that went well.
func done(d engine.Decision) verdict {
	v := verdict{rule: d.Rule, class: d.Class, validFor: d.ValidFor, replies: d.Replies, state: wire.Answered, detail: detail(d)}
	if len(d.Replies) > 0 {
		return v
	}
	v.state = wire.NotAnswered
	switch {
	case d.Rule == "":
		v.reason = "no rule matches"
	case d.NotHere != "":
		v.reason = d.NotHere
	default:
		v.reason = "the rule gives no reply"
	}
	return v
}

func detail(d engine.Decision) string {
	if d.Rule == "" {
		return ""
	}
	s := "rule " + d.Rule // mostly all of it
	if d.Call != nil {
		s += ", back end " + d.Call.Backend
	}
	if d.Bot != "" {
		s += ", bot " + d.Bot
	}
	if d.Ask != nil {
		s += ", engine " + d.Ask.Engine
	}
	if d.Trail != "" {
		s += ", " + d.Trail
	}
	for _, note := range d.Notes {
		s += ", " + note
	}
	return s
}
