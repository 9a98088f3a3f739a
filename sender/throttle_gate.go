package sender

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/run"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// gate is what an account's messages pass before their road.
type gate struct {
	quotas map[wechat.API]*ratelimit.Quota
	// bulk are the places that bulk pushes share: realtime finds one when WeChat is
	// slow and bulk fills the rest.
	bulk map[wechat.API]ratelimit.Permits

	log *zap.Logger

	mu     sync.Mutex
	user   UserCap
	limits map[string]ratelimit.Limit // of template.… and app.…, as they hold now
	share  float64
}

// refreshQuotas is how often WeChat is asked anew, by one of the senders.
const refreshQuotas = 10 * time.Minute

// quotaTurn is how often this node looks after its quotas.
const quotaTurn = time.Minute

// newGate makes the gate of an account that has been validated.
func (s *Sender) newGate(a Account, st *station) *gate {
	g := &gate{quotas: map[wechat.API]*ratelimit.Quota{}, bulk: map[wechat.API]ratelimit.Permits{}, log: s.log.With(zap.String("account", a.Name))}
	for _, r := range st.roads {
		if s.days != nil {
			g.quotas[r.api] = s.days.Quota(knobOf(a.Name, r.api), a.Caps.Quota.of(r.api), s.askQuota(a, r.api))
		}
		if n := a.Limits.of(r.api).Concurrency; n > 0 {
			g.bulk[r.api] = s.permits.of(knobOf(a.Name, r.api)+".bulk", ratelimit.Limit{Concurrency: bulkPlaces(n, a.Caps.share())})
		}
	}
	g.set(a.Caps, st)
	return g
}

func bulkPlaces(all int, share float64) int { return max(1, int(float64(all)*share)) }

// set takes the caps of a file over. Rates are turned by their knobs.
func (g *gate) set(c Caps, st *station) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.user, g.share = c.User, c.share()
	kept := map[string]ratelimit.Limit{}
	for name, l := range c.named() {
		kept[name] = l
		if had, ok := g.limits[name]; ok {
			kept[name] = had
		}
	}
	g.limits = kept
	for api, q := range g.quotas {
		q.SetOwn(c.Quota.of(api))
	}
	for _, r := range st.roads {
		if p, lanes := r.pace.(interface{ Reserve(share float64) }); lanes {
			p.Reserve(g.share)
		}
	}
}

// named are the caps of a file with a name of their own.
func (c Caps) named() map[string]ratelimit.Limit {
	out := make(map[string]ratelimit.Limit, len(c.Templates)+len(c.Apps))
	for _, t := range c.Templates {
		out["template."+t.Name] = t.limit()
	}
	for _, a := range c.Apps {
		out["app."+a.Name] = a.limit()
	}
	return out
}

// capsOf are the caps that a message has to pass, and what it waits for where one
// of them refuses. Replies have only those of their API.
func (g *gate) capsOf(p *parcel) (caps []ratelimit.Cap, whys []string) {
	if p.base.Lane == wire.LaneReplies {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	add := func(name, why string) {
		if l, capped := g.limits[name]; capped && l.Rate > 0 {
			caps, whys = append(caps, ratelimit.Cap{Name: name, Rate: l}), append(whys, why)
		}
	}
	if p.template != "" {
		add("template."+p.template, whyTemplateCap)
	}
	add("app."+p.base.App, whyAppCap)
	if g.user.caps(p.base.Lane) {
		w := ratelimit.Window{Most: g.user.Limit, Period: g.user.Period + tollLife}
		caps, whys = append(caps, ratelimit.Cap{Name: userKey(p.account, p.base.OpenID), Window: w}), append(whys, whyUserCap)
	}
	return caps, whys
}

// turn makes a rate hold that an operator has set.
func (g *gate) turn(name string, l ratelimit.Limit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, there := g.limits[name]; there {
		g.limits[name] = l
	}
}

// enter waits for the place of a message on its road: a bulk push needs one of the
// bulk places too.
func (st *station) enter(ctx context.Context, r *road, p *parcel) (leave func(), err error) {
	lane := func() {}
	if st.gate != nil && p.priority > first && st.gate.bulk[r.api] != nil {
		if lane, err = st.gate.bulk[r.api].Acquire(ctx, p.priority); err != nil {
			return nil, err
		}
	}
	place, err := r.places.Acquire(ctx, p.priority)
	if err != nil {
		lane()
		return nil, err
	}
	return func() { place(); lane() }, nil
}

// places follows a changed number of places.
func (g *gate) places(api wechat.API, n int, version int64) {
	if g == nil || g.bulk[api] == nil {
		return
	}
	l := ratelimit.Limit{}
	g.mu.Lock()
	if n > 0 {
		l.Concurrency = bulkPlaces(n, g.share)
	}
	g.mu.Unlock()
	g.bulk[api].SetLimit(l, ratelimit.Version(version))
}

// level is the quota of an API for today and what was taken of it.
func (g *gate) level(api wechat.API) (most, taken int64) {
	if g == nil {
		return 0, 0
	}
	return g.quotas[api].Level()
}

// close gives back what the gate has in hand.
func (g *gate) close() {
	if g == nil {
		return
	}
	for _, b := range g.bulk {
		b.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var errs []error
	for _, q := range g.quotas {
		errs = append(errs, q.Close(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		g.log.Warn("what was left of the day's quota could not be given back; it is lost for today", zap.Error(err))
	}
}

// needsRedis refuses caps that nothing could count.
func (s *Sender) needsRedis(a Account) error {
	if s.joint != nil || len(a.Caps.Templates)+len(a.Caps.Apps)+a.Caps.User.Limit == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "set accounts", "account %s: caps of templates, apps and users need Redis; configure it or take them out", a.Name)
}

// steerCaps registers the named caps as knobs, and drops those that are gone.
func (s *Sender) steerCaps(accounts []Account) {
	want := map[string]bool{}
	for _, a := range accounts {
		for name, l := range a.Caps.named() {
			subject := "sender." + a.Name + "." + name
			want[subject] = true
			s.knobs.Put(control.Knob{
				Subject: subject, File: control.Limit{Rate: l.Rate, Burst: l.Burst},
				Apply: func(step control.Step) {
					if st := s.station(a.Name); st != nil && st.gate != nil {
						st.gate.turn(name, ratelimit.Limit{Rate: step.Now.Rate, Burst: step.Now.Burst})
					}
				},
			})
		}
	}
	for subject := range s.capKnobs {
		if !want[subject] {
			s.knobs.Drop(subject)
		}
	}
	s.capKnobs = want
}

func (s *Sender) station(name string) *station {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stations[name]
}

// openThrottles prepares what all accounts share.
func (s *Sender) openThrottles(ctx context.Context, d Deps) (err error) {
	nodes := d.MaxNodes
	if nodes == 0 {
		nodes = ratelimit.DefaultConfig().MaxNodes
	}
	// midnight in Beijing is where WeChat's day begins; there is no summer time.
	if s.days, err = ratelimit.NewDays(ctx, d.DB, nodes, 8*time.Hour, d.Now); err != nil {
		return err
	}
	if d.Redis != nil {
		s.joint, err = ratelimit.NewJoint(d.Redis, s.days.Births(), nodes, s.log)
	}
	return err
}

// keepQuotas looks after the quotas of a day while the room runs.
func (s *Sender) keepQuotas() run.Service {
	return run.Func("sender quotas", func(ctx context.Context) error {
		run.Every(ctx, quotaTurn, func(ctx context.Context) {
			for _, st := range s.all() {
				if st.gate == nil {
					continue
				}
				for api, q := range st.gate.quotas {
					if err := q.Refresh(ctx, refreshQuotas); err != nil && ctx.Err() == nil {
						s.log.Info("a day quota could not be looked after", zap.String("account", st.name), zap.String("api", string(api)), zap.Error(err))
					}
				}
			}
		})
		return nil
	})
}
