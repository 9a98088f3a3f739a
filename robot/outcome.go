package robot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

// outcome is everything that one record causes, ready to be published: the
// replies in ordinal order, a dead letter if there is a reason for one, the
// receipt last.
type outcome struct {
	rec      kafka.Record
	callback *wire.Callback // nil if it could not be read
	did      *engine.Action // what is remembered of it, or nil
	identity string         // to be remembered once settled, or ""
	state    wire.State
	result   string // for metrics
	replies  int    // the first letters are replies
	letters  []kafka.Record
	usual    [2]kafka.Record // what letters is made of where one reply is all
	next     int             // letters before it are durable
	failing  time.Time       // since when the next letter could not be published
}

// read decodes a callback and checks that its parts agree. Whatever is wrong
// with it, it must not be worked as another account's or another user's.
func (r *Robot) read(rec kafka.Record) (*wire.Callback, error) {
	c, err := wire.Decode[wire.Callback](rec.Value, rec.Headers)
	if err != nil {
		return nil, errors.New(withoutContent(err))
	}
	_, err = idgen.Parse(c.ID)
	switch {
	case err != nil:
		return nil, errors.New("the letter's id is no message id")
	case c.Account != r.d.Topics.Account(rec.Topic):
		return nil, errors.New("the letter names another account than its topic")
	case c.OpenID != string(rec.Key):
		return nil, errors.New("the letter names another follower than its key")
	case !wire.ValidOpenID(c.OpenID) && c.Quarantined == "":
		return nil, errors.New("the letter's openid is no openid")
	case len(c.IdentityHash) != 2*len(idgen.Hash{}):
		return nil, errors.New("the letter's identity_hash is no SHA-256")
	}
	r.note(c)
	return c, nil
}

// withoutContent describes a decoding error without quoting the letter.
func withoutContent(err error) string {
	switch {
	case errors.Is(err, wire.ErrNewer):
		return "the letter was written by a newer release: upgrade this robot, then replay the dead letter"
	case errors.Is(err, wire.ErrUnknownKind):
		return "the record is no callback letter"
	case errors.Is(err, wire.ErrTooLarge):
		return "the letter is larger than the limit"
	}
	return "the letter is no JSON of a callback"
}

// unreadable parks a record whole. Where its header names a message, that one
// gets its receipt, so that the sum of callbacks still adds up.
func (r *Robot) unreadable(rec kafka.Record, why error) (*outcome, error) {
	o := &outcome{rec: rec, state: wire.Dead, result: "unreadable"}
	account := r.d.Topics.Account(rec.Topic)
	id := wire.HeaderValue(rec.Headers, wire.HeaderID)
	if _, err := idgen.Parse(id); err != nil {
		id = ""
	}
	openid := string(rec.Key)
	if !wire.ValidOpenID(openid) {
		openid = ""
	}
	if err := r.addDead(o, id, account, openid, why.Error()); err != nil {
		return nil, err
	}
	if id == "" {
		return o, nil
	}
	return o, o.add(r.receipts, &wire.Receipt{
		Source: wire.FromRobot, MessageKind: wire.KindCallback, ID: id, Account: account, OpenID: openid,
		State: wire.Dead, Reason: why.Error(), At: wire.Millis(r.d.Now()),
	})
}

// quarantined is a callback whose document contradicts itself. The door has
// answered whoever sent it; to send a reply to one of the followers that it
// names could reach the wrong one. The original is kept as a dead letter.
func (r *Robot) quarantined(m *member, rec kafka.Record, c *wire.Callback) (*outcome, error) {
	if !wire.ValidOpenID(c.OpenID) {
		c.OpenID = ""
	}
	v := verdict{state: wire.Dead, reason: "quarantined: " + c.Quarantined, dead: "quarantined: " + c.Quarantined}
	if c.Answered != "" {
		v.state, v.detail = wire.Answered, "rule "+c.Answered+", in the acknowledgement"
	}
	return r.compose(m, rec, c, v)
}

// compose turns a verdict into letters.
func (r *Robot) compose(m *member, rec kafka.Record, c *wire.Callback, v verdict) (*outcome, error) {
	o := &outcome{rec: rec, callback: c, identity: c.IdentityHash, state: v.state, result: string(v.state), did: r.did(c, v)}
	o.letters = o.usual[:0]
	now := r.d.Now()
	for i := range v.replies {
		reply, err := replyTo(c, i+1, &v, now)
		if err != nil {
			return nil, err
		}
		key, value, headers, err := reply.Encode()
		if err := o.letter(m.replies, key, value, headers, err); err != nil {
			return nil, err
		}
		o.replies++
	}
	if v.dead == "" && v.state == wire.Dead {
		v.dead = v.reason // whoever says dead must find the letter
	}
	if v.dead != "" {
		if err := r.addDead(o, c.ID, c.Account, c.OpenID, v.dead); err != nil {
			return nil, err
		}
	}
	return o, r.addReceipt(o, v.state, v.reason, v.detail, v.calls)
}

// replyTo makes the letter of one reply. Its id depends on the callback and
// the ordinal alone: working the callback again gives the same id.
func replyTo(c *wire.Callback, ordinal int, v *verdict, now time.Time) (wire.Reply, error) {
	hash := idgen.HashOf(c.ID, strconv.Itoa(ordinal))
	id, err := idgen.DeriveBeside(c.ID, hash)
	if err != nil {
		return wire.Reply{}, fmt.Errorf("reply to callback %s: %w", c.ID, err)
	}
	received := time.UnixMilli(c.ReceivedAt)
	if c.ReceivedAt <= 0 {
		received = now
	}
	return wire.Reply{
		ID: id, IdentityHash: hash.String(), CallbackID: c.ID, Ordinal: ordinal, Account: c.Account, OpenID: c.OpenID,
		Content: v.replies[ordinal-1], Class: v.class, Rule: v.rule, ReceivedAt: c.ReceivedAt, CreatedAt: wire.Millis(now),
		ExpiresAt: wire.Millis(received.Add(v.validFor)), TraceParent: c.TraceParent,
	}, nil
}

func (r *Robot) addReceipt(o *outcome, state wire.State, reason, detail string, calls []wire.Step) error {
	c := o.callback
	var steps [4]wire.Step
	l := wire.Receipt{
		Source: wire.FromRobot, MessageKind: wire.KindCallback, ID: c.ID, IdentityHash: c.IdentityHash, Account: c.Account,
		OpenID: c.OpenID, ResendOf: c.ReplayOf, State: state, Reason: reason, Event: c.Event, Detail: detail, At: wire.Millis(r.d.Now()), TraceParent: c.TraceParent,
		BornAt: c.ReceivedAt, Steps: o.way(steps[:0], calls),
	}
	key, value, headers, err := l.Encode()
	return o.letter(r.receipts, key, value, headers, err)
}

// addDead keeps the record whole, as far as a letter can hold it.
func (r *Robot) addDead(o *outcome, id, account, openid, reason string) error {
	return o.add(r.d.Topics.DeadLetters(), &wire.DeadLetter{
		ID: id, Account: account, OpenID: openid, Room: "robot", Reason: reason, Topic: o.rec.Topic, Partition: o.rec.Partition,
		Offset: o.rec.Offset, Headers: o.rec.Headers, Key: o.rec.Key, Value: o.rec.Value, At: wire.Millis(r.d.Now()),
	})
}

func (o *outcome) add(topic string, l wire.Letter) error {
	key, value, headers, err := wire.Encode(l)
	return o.letter(topic, key, value, headers, err)
}

// letter adds what was encoded.
func (o *outcome) letter(topic string, key, value []byte, headers []kafka.Header, err error) error {
	if err != nil {
		return fault.Wrap(fault.Internal, "compose outcome", err)
	}
	o.letters = append(o.letters, kafka.Record{Topic: topic, Key: key, Value: value, Headers: headers})
	return nil
}

// settle publishes the letters in order and goes on where it stopped. An error
// holds the key; the next try comes with the same outcome.
func (r *Robot) settle(ctx context.Context, o *outcome) error {
	for o.next < len(o.letters) {
		n, err := r.publish(ctx, o.letters[o.next:])
		if n > 0 {
			o.next += n
			o.failing = time.Time{}
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		now := time.Now()
		if o.failing.IsZero() {
			o.failing = now
		}
		hopeless := fault.KindOf(err) == fault.Invalid || age(o.failing, now) >= r.cfg.MaxAge
		if o.next >= o.replies || !hopeless {
			return err
		}
		if err := r.giveUp(o, err); err != nil {
			return err
		}
	}
	return nil
}

// publish is an effect: letters go out in their order, each when the one before
// it is durable, and only while the callback's partition is this robot's. It gives
// the number of those that are durable; an error is about the next one.
func (r *Robot) publish(ctx context.Context, letters []kafka.Record) (done int, err error) {
	limit := r.cfg.PublishTimeout
	if s, ok := r.d.Publisher.(sequencer); ok {
		limit *= time.Duration(len(letters))
		kafka.Alive(ctx, limit)
		defer kafka.Alive(ctx, 0)
		return s.PublishInTurn(ctx, letters, limit) // asks before each letter who owns the partition
	}
	if err := kafka.Owned(ctx); err != nil {
		return 0, fmt.Errorf("%w: %w", errNotBegun, err)
	}
	kafka.Alive(ctx, limit)
	defer kafka.Alive(ctx, 0)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := r.d.Publisher.Publish(ctx, letters[0]); err != nil {
		return 0, err
	}
	return 1, nil
}

// giveUp replaces replies that the queue does not take by a dead letter, so
// that the follower's next callbacks are not held for ever.
func (r *Robot) giveUp(o *outcome, why error) error {
	c := o.callback
	reason := "the replies could not be published: " + fault.KindOf(why).String()
	r.d.Log.Error("replies cannot be published, the callback becomes a dead letter; check the replies topic",
		zap.String("account", c.Account), zap.String("callback", c.ID), zap.String("user", r.d.Hasher.OpenID(c.OpenID)), zap.Error(why))
	o.letters, o.replies, o.next, o.failing = nil, 0, 0, time.Time{}
	o.state, o.result = wire.Dead, "undeliverable"
	if err := r.addDead(o, c.ID, c.Account, c.OpenID, reason); err != nil {
		return err
	}
	return r.addReceipt(o, wire.Dead, reason, "", nil)
}
