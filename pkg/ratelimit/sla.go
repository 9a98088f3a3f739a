package ratelimit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/slice"
	"tidegate/pkg/telemetry"
)

// The roles of an SLA, as answers name them.
const (
	ScopeDeveloper = "developer"
	ScopeApp       = "app"
	ScopeUser      = "user"
)

// SLACaller is who makes a call, and for whom.
type SLACaller struct{ Developer, App, User string }

// SLAVerdict is what became of a call. If it is refused, the rest tells by which
// rule; otherwise which rule has the smallest part of its limit left. Without rules
// Scope is empty.
type SLAVerdict struct {
	OK    bool
	Scope string
	Rule  slice.Rule
	Used  int64         // of the rule, with this call if it was admitted
	Wait  time.Duration // of a refused one, until it fits if nobody else calls; negative: never
	Local bool          // decided by this node alone, because Redis was away
}

// restForRedis is how long a node decides alone after Redis has failed it: no call
// waits for a time-out that the one before has just seen.
const restForRedis = time.Second

// SLA holds callers to an SLA over the cluster: one script looks at every rule of
// developer, app and user, and counts the call at all of them or, if one has no room,
// at none. So a caller at three times its limit still gets its limit.
//
// On failure: Redis away, each node holds its own counts against its share,
// floor(limit ÷ max_nodes) (D11), in bounded memory; what it admitted then is not
// told to Redis afterwards, so within one period behind an outage up to twice the
// limit is possible. It is safe for concurrent use.
type SLA struct {
	cfg      SLAConfig
	counters *slice.Counters // nil: this node alone
	local    *slaLocal
	now      func() time.Time
	decided  *prometheus.CounterVec
	retryAt  atomic.Int64 // Unix nanoseconds; Redis is left alone before
}

// NewSLA makes the limits. counters may be nil for a node without Redis, now for the
// real clock.
func NewSLA(cfg SLAConfig, counters *slice.Counters, now func() time.Time, reg prometheus.Registerer) (*SLA, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	s := &SLA{cfg: cfg, counters: counters, local: newSLALocal(), now: now, decided: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_sla_decisions_total", Help: "Calls held against the limits of developer, app and user, by result, role that refused and who decided.",
	}, []string{"result", "scope", "by"})}
	telemetry.Registerer(reg).MustRegister(s.decided)
	return s, nil
}

// rung is one rule that a call is held against.
type rung struct {
	scope string // the role
	name  string // the counter
	rule  slice.Rule
}

// ladder are the rules for a caller, widest first.
func (s *SLA) ladder(c SLACaller) []rung {
	app, user := s.cfg.App, s.cfg.User
	for _, a := range s.cfg.Apps {
		if a.Name != c.App {
			continue
		}
		if a.App != nil {
			app = a.App
		}
		if a.User != nil {
			user = a.User
		}
	}
	out := make([]rung, 0, slice.MaxLevels)
	add := func(scope, name string, list []slice.Rule) {
		for _, r := range list {
			out = append(out, rung{scope, name + ":" + r.Period.String(), filled(r)})
		}
	}
	add(ScopeDeveloper, "d", s.cfg.Developer)
	add(ScopeApp, "a:"+c.App, app)
	add(ScopeUser, "u:"+c.App+":"+c.User, user)
	return out
}

// Take counts a call that costs so many units, or refuses it.
func (s *SLA) Take(ctx context.Context, c SLACaller, cost int64) SLAVerdict {
	if s == nil {
		return SLAVerdict{OK: true}
	}
	ladder := s.ladder(c)
	if len(ladder) == 0 {
		return SLAVerdict{OK: true}
	}
	v, by := s.take(ctx, c, ladder, cost)
	result := "admitted"
	if !v.OK {
		if result = "refused"; s.cfg.Shadow {
			result, v.OK = "shadow", true
		}
	}
	scope := ""
	if result != "admitted" {
		scope = v.Scope
	}
	s.decided.WithLabelValues(result, scope, by).Inc()
	return v
}

func (s *SLA) take(ctx context.Context, c SLACaller, ladder []rung, cost int64) (v SLAVerdict, by string) {
	if s.counters != nil && s.now().UnixNano() >= s.retryAt.Load() {
		levels := make([]slice.Level, len(ladder))
		for i, r := range ladder {
			levels[i] = slice.Level{Scope: r.name, Rule: r.rule}
		}
		got, err := s.counters.Take(ctx, "sla."+c.Developer, cost, levels...)
		if err == nil {
			return judged(ladder, got.OK, got.Refused, got.Used, got.Wait), "cluster"
		}
		s.retryAt.Store(s.now().Add(restForRedis).UnixNano())
	}
	switch {
	case s.cfg.WhenAway == AwayOpen && s.counters != nil:
		return SLAVerdict{OK: true, Local: true}, "node"
	case s.cfg.WhenAway == AwayClosed && s.counters != nil:
		return SLAVerdict{Scope: ladder[0].scope, Rule: ladder[0].rule, Used: ladder[0].rule.Limit, Wait: restForRedis, Local: true}, "node"
	}
	nodes := s.cfg.MaxNodes
	if s.counters == nil {
		nodes = 1
	}
	v = s.local.take(s.now(), c.Developer, ladder, cost, int64(nodes))
	v.Local = true
	return v, "node"
}

// judged picks the rule that answers tell about: the one that refused, or the one
// with the smallest part of its limit left.
func judged(ladder []rung, ok bool, refused int, used []int64, wait time.Duration) SLAVerdict {
	at := refused
	if ok {
		at = 0
		left := func(i int) float64 { return 1 - float64(used[i])/float64(max(ladder[i].rule.Limit, 1)) }
		for i := range ladder {
			if ladder[i].rule.Limit > 0 && (ladder[at].rule.Limit == 0 || left(i) < left(at)) {
				at = i
			}
		}
		wait = 0
	}
	return SLAVerdict{OK: ok, Scope: ladder[at].scope, Rule: ladder[at].rule, Used: used[at], Wait: wait}
}
