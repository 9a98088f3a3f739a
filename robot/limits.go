package robot

import (
	"go.uber.org/zap"

	"tidegate/pkg/control"
	"tidegate/pkg/ratelimit"
	"tidegate/robot/backend"
)

// The caps of accounts and back ends can be changed while the robot runs
// (D9). Both are knobs: the file's value holds unless an operator has set
// another.

func accountKnob(name string) string { return "robot.account." + name }
func backendKnob(name string) string { return "robot.backend." + name }

func knobLimit(l ratelimit.Limit) control.Limit {
	return control.Limit{Rate: l.Rate, Burst: l.Burst, Concurrency: l.Concurrency}
}

func limitsOf(l control.Limit) Limits {
	return Limits{Rate: l.Rate, Burst: l.Burst, Concurrency: l.Concurrency}
}

// setter is a limiter whose limit can be changed.
type setter interface {
	SetLimit(l ratelimit.Limit, how ...ratelimit.Change)
}

// apply tells a limiter where its rate is led and how fast; the places that it
// may hand out are those of now.
func apply(l setter, s control.Step) {
	l.SetLimit(ratelimit.Limit{Rate: s.Target.Rate, Burst: s.Target.Burst, Concurrency: s.Now.Concurrency}, ratelimit.Version(s.Version), ratelimit.Ramp(s.Left))
}

// steer registers the caps of the accounts; called without the lock, because a
// knob that turns takes it.
func (r *Robot) steer(accounts []Account, gone []string) {
	for _, name := range gone {
		r.d.Knobs.Drop(accountKnob(name))
	}
	for _, a := range accounts {
		r.d.Knobs.Put(control.Knob{
			Subject: accountKnob(a.Name), File: knobLimit(a.Limits.limit()),
			Apply: func(s control.Step) { r.turn(a.Name, s) },
		})
	}
}

// turn makes a cap hold. An account that may soon work more at once than its
// reader has workers for is read anew with more, once for the whole way there;
// workers that are too many wait and cost nothing, so they stay.
func (r *Robot) turn(account string, s control.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[account]
	if m == nil {
		return
	}
	apply(m.limiter, s)
	target := Account{Name: account, Limits: limitsOf(s.Target)}
	if r.workersFor(target) <= m.workers {
		return
	}
	next, err := r.member(target, m)
	if err != nil {
		m.log.Error("the account cannot get more workers; its concurrency stays bounded by those it has", zap.Int("workers", m.workers), zap.Error(err))
		return
	}
	if m.cancel != nil {
		m.cancel()
	}
	r.members[account] = next
	if r.base != nil {
		r.start(next)
	}
}

// steerBackend registers the caps of a back end.
func (r *Robot) steerBackend(cfg backend.Config, c *backend.Client, l setter) {
	r.d.Knobs.Put(control.Knob{
		Subject: backendKnob(cfg.Name), File: knobLimit(cfg.Limit()), MustCap: true,
		Apply: func(s control.Step) {
			c.Widen(s.Target.Concurrency)
			apply(l, s)
		},
	})
}
