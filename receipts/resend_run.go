package receipts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

const (
	// resendPage is how many messages are marked and published at a time: as many
	// may be published a second time, under the same ids, if the node dies between
	// the two.
	resendPage = 100
	// resendLease is how long a node that died keeps a re-send from the others.
	resendLease = 30 * time.Second
	// resendPoll is how often a node looks for re-sends that others left.
	resendPoll = time.Second
	// resendRest is waited after a page that could not be published.
	resendRest = time.Second
)

// Why a message is not sent again; the words are in answers and a metric.
const (
	skipBlocked = "blocked"
	skipAccount = "account_gone"
	skipContent = "no_content"
)

// runResends works confirmed re-sends off until ctx ends: a page of each in
// turn, at its rate, whoever asked for it and on whichever node.
func (r *Room) runResends(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.resendWake:
		case <-timer.C:
		}
		timer.Reset(r.resendStep(ctx))
	}
}

// resendStep works one page and says how long to rest.
func (r *Room) resendStep(ctx context.Context) time.Duration {
	j, err := r.store.ClaimResend(ctx, resendLease)
	if err != nil {
		if ctx.Err() == nil {
			r.d.Log.Warn("re-sends cannot be looked for; it is tried again", zap.Error(err))
		}
		return resendPoll
	}
	if j == nil {
		return resendPoll
	}
	// A page is brought to its end also while the room stops.
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
	defer cancel()
	if err := r.resendPage(work, j); err != nil && !errors.Is(err, store.ErrLost) {
		r.d.Log.Warn("a page of a re-send did not go; it is tried again", zap.String("request", j.Request), zap.Error(err))
		j.NextAt = r.d.Now().Add(resendRest).UnixMilli()
		if err := r.store.DropResend(work, j); err != nil {
			r.d.Log.Warn("the claim of a re-send could not be given back; it lapses by itself", zap.String("request", j.Request), zap.Error(err))
		}
		return resendRest
	}
	if j.State != store.ResendRunning {
		return 0
	}
	return max(0, min(resendPoll, time.UnixMilli(j.NextAt).Sub(r.d.Now())))
}

// resendPage marks a page and publishes it. What a node left under way goes
// first, under the ids that it has.
func (r *Room) resendPage(ctx context.Context, j *store.ResendJob) error {
	if len(j.Flight) > 0 {
		return r.publishFlight(ctx, j)
	}
	left := j.Counted - j.Sent
	for left > 0 {
		ms, err := r.store.List(ctx, j.Filter, j.Mark, min(left, resendPage, max(1, j.Rate/4)))
		if err != nil {
			return err
		}
		if len(ms) == 0 {
			break
		}
		marks, err := r.resendMarks(ctx, j, ms)
		if err != nil {
			return err
		}
		behind := ms[len(ms)-1].Mark()
		if err := r.store.TakeFlight(ctx, j, marks, &behind); err != nil {
			return err
		}
		if len(j.Flight) > 0 {
			return r.publishFlight(ctx, j)
		}
	}
	err := r.store.FinishResend(ctx, j)
	j.State = store.ResendFinished
	if err == nil {
		r.d.Log.Info("a re-send has ended", zap.String("request", j.Request), zap.Int("sent", j.Sent), zap.Any("skipped", j.Skipped))
	}
	return err
}

// resendMarks names the messages of a page that can go, and counts the others.
func (r *Room) resendMarks(ctx context.Context, j *store.ResendJob, ms []*store.Message) ([]store.ResendMark, error) {
	refuses, err := r.store.Refusers(ctx, ms)
	if err != nil {
		return nil, err
	}
	if j.Skipped == nil {
		j.Skipped = map[string]int{}
	}
	var marks []store.ResendMark
	now := r.d.Now().UnixMilli()
	for _, m := range ms {
		if refuses[m] {
			j.Skipped[skipBlocked]++
			continue
		}
		_, id, why, err := r.again(ctx, j.Request, m, now)
		switch {
		case err != nil:
			return nil, err
		case why != "":
			j.Skipped[why]++
		case m.ResentAs != id:
			marks = append(marks, store.ResendMark{OldID: m.ID, Variant: m.Variant, NewID: id, Seen: m.ResentAs, At: now})
		}
	}
	return marks, nil
}

// publishFlight publishes what is marked and notes it.
func (r *Room) publishFlight(ctx context.Context, j *store.ResendJob) error {
	var records []kafka.Record
	for _, f := range j.Flight {
		ms, err := r.store.Get(ctx, f.OldID)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
		for _, m := range ms {
			if m.Variant != f.Variant {
				continue
			}
			rec, _, why, err := r.again(ctx, j.Request, m, f.At)
			if err != nil {
				return err
			}
			if why == "" {
				records = append(records, rec)
			}
		}
	}
	if len(records) > 0 {
		if err := r.d.Publisher.PublishAll(ctx, records); err != nil {
			return err
		}
	}
	n := len(j.Flight)
	now := r.d.Now().UnixMilli()
	next := max(now, j.NextAt) + int64(n)*1000/int64(max(j.Rate, 1))
	if err := r.store.EndFlight(ctx, j, next); err != nil {
		return err
	}
	r.met.resent.Add(float64(n))
	return nil
}

// again makes the letter of a re-send: the old content under a new id, which
// depends on the old message and the request alone, born at a time in Unix
// milliseconds. why says that this one cannot go.
func (r *Room) again(ctx context.Context, request string, m *store.Message, at int64) (rec kafka.Record, id, why string, err error) {
	if !r.hasAccount(m.Account) {
		return rec, "", skipAccount, nil
	}
	text, err := r.store.Letter(ctx, m.ID, m.Variant)
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			return rec, "", skipContent, nil
		}
		return rec, "", "", err
	}
	headers := []wire.Header{{Key: wire.HeaderKind, Value: []byte(wire.KindPush)}, {Key: wire.HeaderVersion, Value: fmt.Append(nil, wire.Version)}}
	p, err := wire.Decode[wire.Push](text, headers)
	if err != nil {
		return rec, "", skipContent, nil //nolint:nilerr // such a letter stays as it is; it is counted
	}
	hash := idgen.HashOf("resend", m.ID, m.IdentityHash, request)
	if id, err = idgen.DeriveBeside(m.ID, hash); err != nil {
		return rec, "", skipContent, nil //nolint:nilerr // the same
	}
	if p.ExpiresAt > 0 { // the same time to live, from then on
		p.ExpiresAt = at + max(p.ExpiresAt-p.AcceptedAt, 1)
	}
	p.ID, p.IdentityHash, p.ResendOf, p.AcceptedAt, p.NotBefore = id, hash.String(), m.ID, at, 0
	key, value, hs, err := wire.Encode(p)
	if err != nil {
		return rec, "", skipContent, nil //nolint:nilerr // too large by now
	}
	return kafka.Record{Topic: r.d.Topics.Pushes(p.Account, p.Lane), Key: key, Value: value, Headers: hs}, id, "", nil
}
