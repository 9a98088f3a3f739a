package sender

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
)

// Numbers of the road.
const (
	// troubleAfter failures in a row, without an answer between, close a road.
	troubleAfter = 5
	// everybodyAfter answers 50002 in a row mean the account, not the users.
	everybodyAfter = 20
	// slowest is the least part of its rate that a road is slowed to.
	slowest = 1.0 / 16
	// slowAgain bounds halvings: all requests of one moment meet one limit.
	slowAgain = 10 * time.Second
	// recoverEvery and recoverBy lead a slowed road back to its rate.
	recoverEvery = 30 * time.Second
	recoverBy    = 1.25
	// templateRest is how long a refused template is refused here as well.
	templateRest = time.Minute
	maxTemplates = 1000
)

// beijing is where WeChat's day begins; there is no summer time.
var beijing = time.FixedZone("UTC+8", 8*3600)

// midnight is when daily quotas come back after now.
func midnight(now time.Time) time.Time {
	y, m, d := now.In(beijing).Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, beijing)
}

// road is one API of one account: its cap, which all senders hold to together
// where permits are shared, and whether it is open. Places bound
// the messages between intent and outcome (the F of reliability.md 2a); the
// pace bounds departures.
type road struct {
	account string
	api     wechat.API
	places  *tide
	pace    ratelimit.Permits
	own     brake  // of this API
	whole   *brake // of the account, shared by its roads
	log     *zap.Logger
	quota   time.Duration
	budget  *budget
	policy  atomic.Pointer[policy]

	mu        sync.Mutex
	limit     ratelimit.Limit
	version   int64     // of the live settings that the limit is from
	told      told      // a newer one that other senders have, while this one slows them
	risen     time.Time // when a raised rate is reached
	factor    float64
	slowedAt  time.Time
	changedAt time.Time
	failures  int // in a row
	limited   int // 50002 in a row
	templates map[string]refusedTemplate
}

type refusedTemplate struct {
	until time.Time
	said  answer
}

func newRoad(account string, api wechat.API, l ratelimit.Limit, whole *brake, quota time.Duration, permits Permits, log *zap.Logger) *road {
	return &road{
		account: account, api: api, whole: whole, limit: l, factor: 1, quota: quota,
		places:    newTide(permits.of(knobOf(account, api)+".places", ratelimit.Limit{Concurrency: l.Concurrency}), l.Concurrency),
		budget:    newBudget(),
		pace:      permits.of(knobOf(account, api), ratelimit.Limit{Rate: l.Rate, Burst: l.Burst, StartFull: l.StartFull}),
		log:       log.With(zap.String("account", account), zap.String("api", string(api))),
		templates: map[string]refusedTemplate{},
	}
}

// told is a limit that permits told of before the live settings did.
type told struct {
	limit   ratelimit.Limit
	version int64
}

// setLimit changes the cap, from a version of the live settings; a raised rate is
// reached after slow. A slowed road stays slowed in proportion.
func (r *road) setLimit(l ratelimit.Limit, version int64, slow time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit, r.version, r.risen = l, version, time.Now().Add(slow)
	if version >= r.told.version {
		r.told = told{}
	}
	r.places.SetLimit(ratelimit.Limit{Concurrency: l.Concurrency}, ratelimit.Version(version))
	r.applyRate()
}

// applyRate is called with mu held.
func (r *road) applyRate() {
	l, version := r.newest()
	r.pace.SetLimit(ratelimit.Limit{Rate: l.Rate * r.factor, Burst: max(1, int(float64(l.Burst)*r.factor))},
		ratelimit.Version(version), ratelimit.Ramp(time.Until(r.risen)))
}

// newest is the limit to slow, and its version. Permits go by the highest version,
// so a sender whose live settings lag would slow nobody: while it slows it speaks
// for the version that the others hold. Called with mu held.
func (r *road) newest() (ratelimit.Limit, int64) {
	if p, shared := r.pace.(interface {
		Held() (ratelimit.Limit, int64, bool)
	}); shared && r.factor < 1 {
		if l, v, ok := p.Held(); ok && l.Rate > 0 && v > max(r.version, r.told.version) {
			r.told = told{l, v}
		}
	}
	if r.told.version > r.version {
		return r.told.limit, r.told.version
	}
	return r.limit, r.version
}

// ticket is a right to try, to be given back with done.
type ticket struct{ own, whole bool } // whether it is the probe of a brake

// enter asks whether a message may try now.
func (r *road) enter(now time.Time) (ticket, time.Duration) {
	r.recover(now)
	own, wait := r.own.pass(now)
	if wait > 0 {
		return ticket{}, wait
	}
	whole, wait := r.whole.pass(now)
	if wait > 0 && own {
		r.own.leave()
	}
	return ticket{own, whole}, wait
}

// stillOpen asks again after waiting for a place.
func (r *road) stillOpen(t ticket, now time.Time) time.Duration {
	var wait time.Duration
	if !t.own {
		wait = r.own.closed(now)
	}
	if !t.whole {
		wait = max(wait, r.whole.closed(now))
	}
	return wait
}

// back gives a ticket back that brought no news.
func (r *road) back(t ticket) {
	if t.own {
		r.own.leave()
	}
	if t.whole {
		r.whole.leave()
	}
}

// learn draws the consequences of an answer for all who come after.
func (r *road) learn(t ticket, a answer, template string, now time.Time) {
	inTrouble, limitedAll := r.count(a)
	if limitedAll {
		a.class = stopped
	}
	switch a.class {
	case unsure, unsent:
		if inTrouble || t.own {
			r.shut(&r.own, now, causeTrouble, a, 0, t.own)
			t.own = false
		}
		r.back(t)
		return
	case tooFast:
		r.slow(now)
		r.shut(&r.own, now, causeFast, a, 0, t.own)
		t.own = false
		r.back(t)
		return
	case noQuota:
		pause := r.quota
		if pause == 0 {
			pause = midnight(now).Sub(now) + 5*time.Second
		}
		r.shut(&r.own, now, causeQuota, a, pause, t.own)
		t.own = false
		r.back(t)
		return
	case apiStopped:
		r.shut(&r.own, now, causeStop, a, 0, t.own)
		t.own = false
		r.back(t)
		return
	case stopped:
		r.shut(r.whole, now, causeStop, a, 0, t.whole)
		t.whole = false
		r.back(t)
		return
	case badToken:
		r.back(t)
		return
	case noTemplate:
		r.refuseTemplate(template, a, now)
	}
	r.reopen(t)
}

// count keeps the runs of equal trouble.
func (r *road) count(a answer) (inTrouble, limitedAll bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.class == unsure || a.class == unsent {
		r.failures++
	} else {
		r.failures = 0
	}
	if a.code == codeUserLimits {
		r.limited++
	} else if a.class == sent {
		r.limited = 0
	}
	return r.failures >= troubleAfter, r.limited >= everybodyAfter
}

func (r *road) shut(b *brake, now time.Time, why cause, a answer, pause time.Duration, probe bool) {
	detail := fmt.Sprintf("%s: errcode %d", a.class, a.code)
	if why == causeStop {
		detail += ": " + refusedWhat(a)
	}
	if !b.close(now, why, detail, pause, probe) {
		return
	}
	_, _, until := b.state()
	f := []zap.Field{zap.Int("errcode", a.code), zap.Duration("pause", until.Sub(now))}
	switch why {
	case causeStop:
		r.log.Error("stopped: WeChat refuses "+refusedWhat(a)+"; letters wait", f...)
	case causeQuota:
		r.log.Error("the day's quota of this API is used up; letters wait", f...)
	case causeFast:
		r.log.Warn("WeChat says too fast: rate halved", f...)
	default:
		r.log.Warn("WeChat does not answer properly; one letter at a time probes", f...)
	}
}

func refusedWhat(a answer) string {
	switch {
	case a.class == apiStopped:
		return "this API for the account: check its rights in WeChat"
	case a.code == 40164 || a.code >= 89503 && a.code <= 89507 || a.code == 61004:
		return "our address: put it on the account's IP whitelist"
	case a.code == codeUserLimits:
		return "user after user: the account seems to be limited"
	}
	return "the account: check appid, secret and the account's notices in WeChat"
}

func (r *road) reopen(t ticket) {
	if t.own {
		if was := r.own.open(); was != causeNone {
			r.log.Info("open again", zap.String("after", string(was)))
		}
	}
	if t.whole {
		if was := r.whole.open(); was != causeNone {
			r.log.Info("account open again", zap.String("after", string(was)))
		}
	}
}

func (r *road) slow(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit.Rate == 0 || now.Sub(r.slowedAt) < slowAgain {
		return
	}
	r.factor = max(r.factor/2, slowest)
	r.slowedAt, r.changedAt = now, now
	r.applyRate()
}

func (r *road) recover(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.factor == 1 || now.Sub(r.changedAt) < recoverEvery {
		return
	}
	r.factor, r.changedAt = min(1, r.factor*recoverBy), now
	r.applyRate()
}

// share is the part of its rate that the road has now.
func (r *road) share() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.factor
}

// refuseTemplate stops a template that WeChat refuses for everybody, so that a
// campaign of a million does not ask a million times.
func (r *road) refuseTemplate(id string, a answer, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, t := range r.templates {
		if !now.Before(t.until) {
			delete(r.templates, k)
		}
	}
	if len(r.templates) >= maxTemplates {
		return
	}
	if _, known := r.templates[id]; !known {
		r.log.Error("WeChat refuses a template; its pushes are rejected for a while",
			zap.String("template", id), zap.Int("errcode", a.code), zap.Duration("for", templateRest))
	}
	r.templates[id] = refusedTemplate{now.Add(templateRest), a}
}

func (r *road) refusedTemplate(id string, now time.Time) (answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.templates[id]
	return t.said, ok && now.Before(t.until)
}
