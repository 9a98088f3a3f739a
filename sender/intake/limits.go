package intake

import (
	"cmp"
	"context"
	"sync"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
)

// Limits counts calls of developers, apps and users; *ratelimit.SLA does.
type Limits interface {
	Take(ctx context.Context, c ratelimit.SLACaller, cost int64) ratelimit.SLAVerdict
}

// charge counts a push against the limits, or refuses it. Pushes that were accepted
// before do not come here: a repeat costs nothing. One that the queue did not take
// has been counted all the same.
func (in *Intake) charge(ctx context.Context, p plan) error {
	if in.d.Limits == nil {
		return nil
	}
	v := in.d.Limits.Take(ctx, ratelimit.SLACaller{
		Developer: cmp.Or(p.app.Developer, p.app.Name), App: p.app.Name, User: p.req.Account + "." + p.req.OpenID,
	}, 1)
	q := api.Quota{Scope: v.Scope, Limit: v.Rule.Limit, Used: v.Used, Period: v.Rule.Period}
	if v.OK {
		if p.tell != nil && v.Scope != "" {
			p.tell(q)
		}
		return nil
	}
	over := &api.OverLimit{Status: in.cfg.Limits.Status, Quota: q, Wait: v.Wait}
	return fault.New(fault.Limited, "accept push", "%w", over).WithRetryAfter(max(v.Wait, 0))
}

// chargers is how many pushes of a batch are counted at once.
const chargers = 16

// chargeAll counts the pushes of a batch that are to be queued.
func (in *Intake) chargeAll(ctx context.Context, items []item) {
	if in.d.Limits == nil {
		return
	}
	var wg sync.WaitGroup
	for begin := range min(chargers, len(items)) {
		wg.Go(func() {
			for i := begin; i < len(items); i += chargers {
				if it := &items[i]; it.err == nil && it.twin < 0 && !it.row.Published && !it.done {
					it.err = in.charge(ctx, it.plan)
				}
			}
		})
	}
	wg.Wait()
}

// fitAll holds the pushes of a batch against their templates, and reports whether
// nobody could tell about some.
func (in *Intake) fitAll(ctx context.Context, items []item) (unchecked bool) {
	patient, cancel := context.WithTimeout(ctx, templatesWait)
	defer cancel()
	for i := range items {
		it := &items[i]
		if it.err != nil {
			continue
		}
		away, err := in.fits(patient, it.plan.req)
		unchecked = unchecked || away
		if err != nil {
			it.id, it.err = in.before(ctx, it.plan, err)
			it.done = it.err == nil
		}
	}
	return unchecked
}
