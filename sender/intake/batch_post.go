package intake

import (
	"context"
	"hash/maphash"
	"sync"

	"go.uber.org/zap"
)

// posters is how many pushes of a batch wait for the queue at once.
const posters = 64

var batchSeed = maphash.MakeSeed()

// postAll queues what is to be queued. Those of one follower go one after another,
// in the order of the batch.
func (in *Intake) postAll(ctx context.Context, items []item) {
	var lanes [posters][]*item
	for i := range items {
		it := &items[i]
		if it.err == nil && it.twin < 0 && !it.row.Published && !it.done {
			n := maphash.String(batchSeed, it.plan.req.OpenID) % posters
			lanes[n] = append(lanes[n], it)
		}
	}
	var wg sync.WaitGroup
	for _, lane := range lanes {
		if len(lane) == 0 {
			continue
		}
		wg.Go(func() {
			for _, it := range lane {
				at := it.plan.at
				if it.hash != "" {
					at = it.row.AcceptedAt
				}
				it.err = in.publish(ctx, it.plan, it.id, it.hash, at)
				it.posted = it.err == nil
			}
		})
	}
	wg.Wait()
}

// markAll remembers which keys have their push in the queue. If that fails the
// pushes are accepted all the same: a repeat publishes again, and the sender
// recognises the ids.
func (in *Intake) markAll(ctx context.Context, items []item) {
	var rows []*keyRow
	for i := range items {
		if it := &items[i]; it.posted && it.hash != "" {
			rows = append(rows, &it.row)
		}
	}
	if err := in.keys.publishedAll(ctx, rows); err != nil {
		in.d.Log.Warn("idempotency keys could not be marked as published", zap.Int("keys", len(rows)), zap.Error(err))
	}
}
