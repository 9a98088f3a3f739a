package receipts

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// Lagger measures what a consumer group has not read; *kafka.Admin is one.
type Lagger interface {
	Lag(ctx context.Context, group string, topics []string) ([]kafka.Lag, error)
}

// Conservation is the sum of one account and kind (G30): everything that was asked
// for is in exactly one place. The terms of the rows are read at one moment from
// the counts; the queue is measured beside them and never computed as the rest.
type Conservation struct {
	Account string    `json:"account"`
	Kind    wire.Kind `json:"kind"`
	// Messages are all rows: what was asked for, as far as it is noted.
	Messages int64 `json:"messages"`
	// Ended are the rows in terminal states, by state.
	Ended    map[wire.State]int64 `json:"ended"`
	Accepted int64                `json:"accepted"`
	Held     int64                `json:"held"`
	Sending  int64                `json:"sending"`
	Queued   int64                `json:"queued"`
	// Waiting is what lies in the sender's topics and is not committed, Unnoted what
	// of those topics this room has still to read, both as measured.
	Waiting int64 `json:"waiting_measured"`
	Unnoted int64 `json:"unnoted_measured"`
	// Difference is what rows say is queued or being sent, with what is unnoted, less
	// what waits: 0 at rest. In motion it is what is on its way between the rooms.
	Difference int64 `json:"difference"`
}

// conserve puts the sums together. The queue is measured first, so that what is
// worked meanwhile shows as a difference that goes away, not as a loss.
func (r *Room) conserve(ctx context.Context) ([]Conservation, error) {
	type key struct {
		account string
		kind    wire.Kind
	}
	by := map[key]*Conservation{}
	of := func(account string, kind wire.Kind) *Conservation {
		k := key{account, kind}
		if by[k] == nil {
			by[k] = &Conservation{Account: account, Kind: kind, Ended: map[wire.State]int64{}}
		}
		return by[k]
	}
	for _, account := range r.accountNames() {
		for _, lane := range wire.Lanes() {
			kind := wire.KindPush
			if lane == wire.LaneReplies {
				kind = wire.KindReply
			}
			c, topics := of(account, kind), []string{r.d.Topics.Lane(account, lane)}
			for group, sum := range map[string]*int64{r.d.Topics.SenderGroup(account, lane): &c.Waiting, wire.QueuedGroup(r.cfg.Group): &c.Unnoted} {
				lags, err := r.d.Queues.Lag(ctx, group, topics)
				if err != nil {
					return nil, err
				}
				for _, l := range lags {
					*sum += l.Lag
				}
			}
		}
	}
	tallies, err := r.store.Tallies(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, err
	}
	for _, t := range tallies {
		if t.Kind != wire.KindCallback {
			of(t.Account, t.Kind).take(t)
		}
	}
	out := make([]Conservation, 0, len(by))
	for _, c := range by {
		c.Difference = c.Queued + c.Sending + c.Unnoted - c.Waiting
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Conservation) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Kind, b.Kind))
	})
	return out, nil
}

func (c *Conservation) take(t store.Tally) {
	c.Messages += t.N
	switch {
	case t.State.Terminal():
		c.Ended[t.State] += t.N
	case t.State == wire.Accepted:
		c.Accepted += t.N
	case t.State == wire.Held:
		c.Held += t.N
	case t.State == wire.Sending:
		c.Sending += t.N
	default:
		c.Queued += t.N
	}
}

func (r *Room) accountNames() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.accounts)
}

// showConservation puts the differences into the metrics. The queue may be away:
// then the last ones stay, and the rows are shown all the same.
func (r *Room) showConservation(ctx context.Context) {
	if r.d.Queues == nil {
		return
	}
	sums, err := r.conserve(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.d.Log.Debug("the queue cannot be measured for the sums", zap.Error(err))
		}
		return
	}
	for _, c := range sums {
		r.met.difference.WithLabelValues(c.Account, string(c.Kind)).Set(float64(c.Difference))
		r.met.waiting.WithLabelValues(c.Account, string(c.Kind)).Set(float64(c.Waiting))
	}
}

func (r *Room) serveConservation(w http.ResponseWriter, req *http.Request) {
	if _, err := api.ParseParams(req); err != nil {
		api.WriteProblem(w, err)
		return
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	sums, err := r.conserve(ctx)
	if err != nil {
		if req.Context().Err() == nil {
			r.d.Log.Warn("the sums cannot be shown", zap.Error(err))
		}
		api.WriteProblem(w, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, struct {
		At   string         `json:"at"`
		Sums []Conservation `json:"sums"`
	}{clock(r.d.Now().UnixMilli()), sums})
}
