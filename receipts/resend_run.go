package receipts

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// resendPage is how many messages are published and marked at a time: as many
// may go out a second time, under the same ids, if the node dies between the
// two.
const resendPage = 100

// carryOut sends the selection page by page while its time lasts. What was
// published is marked before the next page, so that nothing goes out twice for
// one confirmation. On an error the claim is given back.
func (r *Room) carryOut(ctx context.Context, c confirmation, claim store.Resend, done *resent) error {
	err := r.sendPages(ctx, c, claim, done)
	// What is noted from here on is true also when the client has gone away.
	note, cancel := bounded(context.WithoutCancel(ctx))
	defer cancel()
	if err == nil {
		done.Finished = true
		return r.store.EndResend(note, c.Request)
	}
	if derr := r.store.DropResend(note, c.Request); derr != nil {
		r.d.Log.Warn("the claim of a re-send could not be given back; it lapses by itself", zap.String("request", c.Request), zap.Error(derr))
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && done.Sent > claim.Sent {
		return nil // cut off after a part: the answer says so
	}
	return err
}

func (r *Room) sendPages(ctx context.Context, c confirmation, claim store.Resend, done *resent) error {
	if claim.Sent == 0 {
		n, err := r.store.Count(ctx, c.Filter, c.Counted+1)
		if err != nil {
			return err
		}
		if n > c.Counted {
			return fault.New(fault.Conflict, resendOp, "more messages are selected now than the %d that were counted: count again", c.Counted)
		}
	}
	var after *store.Mark
	for {
		ms, err := r.store.List(ctx, c.Filter, after, resendPage)
		if err != nil || len(ms) == 0 {
			return err
		}
		records, marks, err := r.letters(ctx, c.Request, ms, done)
		if err != nil {
			return err
		}
		if len(records) > 0 {
			if err := r.d.Publisher.PublishAll(ctx, records); err != nil {
				return err
			}
			if err := r.store.Resent(ctx, c.Request, marks); err != nil {
				return err
			}
		}
		done.Sent += len(marks)
		r.met.resent.Add(float64(len(marks)))
		mark := ms[len(ms)-1].Mark()
		after = &mark
	}
}

// letters makes the new letters of a page. Messages that cannot be sent again
// are counted with the reason of the last one.
func (r *Room) letters(ctx context.Context, request string, ms []*store.Message, done *resent) ([]kafka.Record, []store.ResentMark, error) {
	var records []kafka.Record
	var marks []store.ResentMark
	for _, m := range ms {
		rec, id, err := r.again(ctx, request, m)
		if err != nil {
			if fault.KindOf(err) != fault.Final {
				return nil, nil, err
			}
			done.Skipped++
			done.Why = err.Error()
			continue
		}
		if m.ResentAs == id {
			continue // by this very confirmation, before it was cut off
		}
		records = append(records, rec)
		marks = append(marks, store.ResentMark{OldID: m.ID, Variant: m.Variant, NewID: id})
	}
	return records, marks, nil
}

// again makes the letter of a re-send: the old content under a new id, which
// depends on the old message and the confirmation alone. An error of kind
// fault.Final says why this one cannot go.
func (r *Room) again(ctx context.Context, request string, m *store.Message) (kafka.Record, string, error) {
	skip := func(why string) (kafka.Record, string, error) {
		return kafka.Record{}, "", &fault.Error{Kind: fault.Final, Err: errors.New(why)}
	}
	if !r.hasAccount(m.Account) {
		return skip("the account " + m.Account + " is not configured any more")
	}
	text, err := r.store.Letter(ctx, m.ID, m.Variant)
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			return skip("the content of the push is not stored")
		}
		return kafka.Record{}, "", err
	}
	headers := []wire.Header{{Key: wire.HeaderKind, Value: []byte(wire.KindPush)}, {Key: wire.HeaderVersion, Value: fmt.Append(nil, wire.Version)}}
	p, err := wire.Decode[wire.Push](text, headers)
	if err != nil {
		return skip("the content of the push cannot be read")
	}
	hash := idgen.HashOf("resend", m.ID, m.IdentityHash, request)
	id, err := idgen.DeriveBeside(m.ID, hash)
	if err != nil {
		return skip("the old id cannot be read")
	}
	now := r.d.Now().UnixMilli()
	if p.ExpiresAt > 0 { // the same time to live, from now on
		p.ExpiresAt = now + max(p.ExpiresAt-p.AcceptedAt, 1)
	}
	p.ID, p.IdentityHash, p.ResendOf, p.AcceptedAt = id, hash.String(), m.ID, now
	key, value, hs, err := wire.Encode(p)
	if err != nil {
		return skip("the content of the push is too large")
	}
	return kafka.Record{Topic: r.d.Topics.Pushes(p.Account, p.Lane), Key: key, Value: value, Headers: hs}, id, nil
}
