package robot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/robot/allowance"
	"tidegate/robot/dialogue"
	"tidegate/robot/engine"
)

// talker is an Engine that holds dialogues, counts, and asks external engines.
type talker interface {
	TermsIn(c *wire.Callback, s engine.Situation) engine.Terms
	DecideIn(c *wire.Callback, s engine.Situation) (engine.Decision, error)
	Answered(c *wire.Callback, s engine.Situation) engine.Decision
	Dialogues(c *wire.Callback) bool // whether anybody needs to ask where the follower stands
	Leaves(c *wire.Callback) bool    // whether the door's answer ends a dialogue
	Converses() bool
	Engines() []string
}

// errHold says that a callback cannot be decided now: its key is held and the
// callback is tried again, so that it frees its worker and its permit.
var errHold = errors.New("the callback is held")

// noTurn tells that a callback was turned away, by overload or for its age.
func noTurn(err error) bool {
	var no *refusal
	return errors.Is(err, errExpired) || errors.As(err, &no)
}

// seat is where the follower of a callback stands.
type seat struct {
	place *dialogue.Place // nil: nobody needs to know
	at    place
	moved bool // the dialogue, for this callback
	wants engine.Wants
	user  string          // business user, if wanted
	last  []engine.Action // if wanted
	lost  error           // not nil: it could not be found out in max_age
}

func (s *seat) situation() (sit engine.Situation) {
	sit.User, sit.Last = s.user, s.last
	if s.place != nil {
		sit.State = s.place.State
	}
	return sit
}

// seen says that everything of the callback was done before.
func (s *seat) seen() bool { return s.place != nil && s.place.Seen }

// asksWhere reports whether deciding c takes to know where its follower stands.
func asksWhere(rules Engine, c *wire.Callback) bool {
	t, ok := rules.(talker)
	return ok && t.Dialogues(c)
}

func termsOf(rules Engine, c *wire.Callback, s *seat) engine.Terms {
	if t, ok := rules.(talker); ok {
		return t.TermsIn(c, s.situation())
	}
	return rules.Terms(c)
}

// makeDialogues opens what dialogues and limits need.
func (r *Robot) makeDialogues() (err error) {
	if r.dialogues, err = dialogue.New(r.cfg.Dialogue, r.d.Redis, r.d.Registry); err != nil {
		return err
	}
	if r.d.Redis != nil {
		r.allowances = allowance.New(r.d.Redis)
	}
	return nil
}

// knowsDialogues refuses rules whose dialogues have no place.
func (r *Robot) knowsDialogues(rules Engine) error {
	t, ok := rules.(talker)
	if !ok {
		return nil
	}
	if t.Converses() && r.dialogues == nil {
		return errors.New("set rules: a rule holds dialogues, and there is no place for them: give robot.dialogue.key ('openssl rand -base64 32' makes one) and restart")
	}
	for _, name := range t.Engines() {
		if r.engines[name] == nil {
			return fmt.Errorf("set rules: a rule asks the engine %q, which is not configured: add it to robot.engines or restart with it", name)
		}
	}
	return nil
}

// sit finds out where the callback's follower stands. An error holds the key.
// Without Redis nobody knows, and to guess would be the wrong branch for
// somebody who was asked a question: after max_age the seat is lost, and the
// follower gets the fallback text.
func (r *Robot) sit(ctx context.Context, rec kafka.Record, c *wire.Callback, s *seat, needed bool) error {
	s.at = placeOf(rec)
	if !needed || r.dialogues == nil {
		return nil
	}
	p, err := r.dialogues.Open(ctx, c.Account, c.OpenID, dialogue.Mark{ID: c.ID, Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, At: rec.Timestamp})
	if err == nil {
		s.place = p
		return nil
	}
	if r.holds.still(s.at, r.cfg.MaxAge) {
		return fmt.Errorf("%w: %w", errHold, err)
	}
	s.lost = fmt.Errorf("where the follower stands could not be found out in max_age %s: %w", r.cfg.MaxAge, err)
	return nil
}

// decide finds what to do with a callback, and moves the follower's dialogue
// before anything is done, so that whatever happens afterwards the callback
// decides the same again.
func (r *Robot) decide(ctx context.Context, rules Engine, c *wire.Callback, s *seat) (engine.Decision, error) {
	t, ok := rules.(talker)
	if !ok {
		return rules.Decide(c)
	}
	if s.lost != nil {
		return engine.Decision{Fallback: rules.Fallback(), Class: wire.PreferDuplicate, ValidFor: engine.DefaultValidFor}, s.lost
	}
	if err := r.know(ctx, c, s); err != nil {
		d, _ := t.DecideIn(c, s.situation())
		return withoutEffects(d), err
	}
	d, err := t.DecideIn(c, s.situation())
	if err == nil && d.Limit != nil {
		err = r.allow(ctx, c, &d)
	}
	if err == nil && d.Ask == nil {
		err = r.move(ctx, s, &d)
	}
	return d, err
}

// move makes the decision's state the follower's.
func (r *Robot) move(ctx context.Context, s *seat, d *engine.Decision) error {
	if !d.Moves || s.place == nil {
		return nil
	}
	if err := kafka.Owned(ctx); err != nil {
		return err
	}
	err := r.dialogues.Move(ctx, s.place, d.State, d.Patience())
	kind := fault.KindOf(err)
	s.moved = err == nil
	if err == nil || kind != fault.Unavailable && kind != fault.Conflict {
		return err
	}
	if r.holds.still(s.at, r.cfg.MaxAge) {
		return fmt.Errorf("%w: %w", errHold, err)
	}
	return err
}

// putBack lets the follower of a callback that got no turn after all give his
// answer again: the decision had moved his dialogue, and nothing came of it. He has
// the time for it anew. An error holds the key, as long as it may be held; after
// that the answer is lost, and he is told that it was too much.
func (r *Robot) putBack(ctx context.Context, c *wire.Callback, s *seat, d *engine.Decision, why error) error {
	if !s.moved || !noTurn(why) {
		return nil
	}
	state := s.place.State
	if state != nil && c.ReceivedAt > state.At {
		again := *state
		again.At = c.ReceivedAt
		state = &again
	}
	err := kafka.Owned(ctx)
	if err == nil {
		err = r.dialogues.Back(ctx, s.place, state, d.PatienceIn(state))
	}
	if err == nil {
		s.moved = false
		return nil
	}
	if r.holds.still(s.at, r.cfg.MaxAge) {
		return fmt.Errorf("%w: %w", errHold, err)
	}
	r.d.Log.Warn("a dialogue could not be put back after its answer was refused", zap.String("callback", c.ID), zap.Error(err))
	return nil
}

// allow asks whether the follower may once more. Where nobody can tell, the
// rule has said what then.
func (r *Robot) allow(ctx context.Context, c *wire.Callback, d *engine.Decision) error {
	at := time.UnixMilli(c.ReceivedAt)
	if c.ReceivedAt <= 0 {
		at = time.Unix(c.CreateTime, 0)
	}
	ok, result := !d.Limit.DenyBlind, "allowed_blind"
	if !ok {
		result = "refused_blind"
	}
	if r.allowances != nil {
		taken, err := r.allowances.Take(ctx, c.Account, c.OpenID, *d.Limit, c.ID, at)
		switch {
		case err == nil && taken:
			ok, result = true, "allowed"
		case err == nil:
			ok, result = false, "refused"
		}
	}
	r.m.limited.WithLabelValues(c.Account, result).Inc()
	if ok {
		return nil
	}
	return d.Refuse()
}

// leave ends the dialogue of a follower whom the door has handed to a person.
// It is worth holding the key for, but no callback is lost over it.
func (r *Robot) leave(ctx context.Context, rec kafka.Record, c *wire.Callback, rules Engine) error {
	t, ok := rules.(talker)
	if !ok || !t.Leaves(c) {
		return nil
	}
	s := &seat{}
	if err := r.sit(ctx, rec, c, s, true); err != nil || s.lost != nil || s.place == nil || s.place.Seen {
		return err
	}
	d := t.Answered(c, s.situation())
	if err := r.move(ctx, s, &d); err != nil {
		if errors.Is(err, errHold) {
			return err
		}
		r.d.Log.Warn("a dialogue could not be ended after the hand-over to a person", zap.String("callback", c.ID), zap.Error(err))
	}
	return nil
}

// holds remembers since when callbacks are held, of maxPending at most in this
// process: one more is not held and gets the fallback text at once.
type holds struct {
	mu    sync.Mutex
	since map[place]time.Time
}

func newHolds() *holds { return &holds{since: map[place]time.Time{}} }

// still notes that a callback is held and reports whether it may be for longer.
func (h *holds) still(at place, most time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, known := h.since[at]
	switch {
	case !known && len(h.since) >= maxPending:
		return false
	case !known:
		h.since[at] = time.Now()
		return true
	}
	return time.Since(since) < most
}

func (h *holds) drop(at place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.since, at)
}

// forget drops what belongs to a partition that somebody else works now.
func (h *holds) forget(topic string, partition int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at := range h.since {
		if at.topic == topic && at.partition == partition {
			delete(h.since, at)
		}
	}
}
