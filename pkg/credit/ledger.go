package credit

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
	"tidegate/pkg/telemetry"
)

// Verdict is what the ledger says about a message before it goes.
type Verdict string

// The verdicts. Granted and Unknown may go.
const (
	Granted Verdict = "granted"
	Unknown Verdict = "unknown" // the ledger cannot tell
	Closed  Verdict = "closed"  // the window is over
	UsedUp  Verdict = "used_up" // the window's messages were sent
)

// Refused reports that WeChat would not take the message.
func (v Verdict) Refused() bool { return v == Closed || v == UsedUp }

// after is how long a key stays when its window is over: whoever asks then is
// told so.
const after = time.Hour

// Ledger asks and tells. A nil Ledger knows nothing and lets everything go. It is
// safe for concurrent use.
type Ledger struct {
	cfg   Config
	redis *redis.Client
	now   func() time.Time

	acts     chan Act
	verdicts *prometheus.CounterVec
	learned  *prometheus.CounterVec
	dropped  prometheus.Counter
}

// New makes a ledger; it is nil if the configuration says so or there is no
// Redis. A nil now is Redis' own clock.
func New(cfg Config, r *redis.Client, now func() time.Time, reg prometheus.Registerer) (*Ledger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Off || r == nil {
		return nil, nil
	}
	l := &Ledger{
		cfg: cfg, redis: r, now: now, acts: make(chan Act, waiting),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tidegate", Subsystem: "credit", Name: "verdicts_total", Help: "What the ledger of reply credits said about messages."}, []string{"account", "verdict"}),
		learned:  prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tidegate", Subsystem: "credit", Name: "learned_total", Help: "Refusals of WeChat that the ledger had not foreseen, by what it learned."}, []string{"account", "verdict"}),
		dropped:  prometheus.NewCounter(prometheus.CounterOpts{Namespace: "tidegate", Subsystem: "credit", Name: "dropped_total", Help: "Acts of followers that could not be noted: Redis was away or too slow."}),
	}
	telemetry.Registerer(reg).MustRegister(l.verdicts, l.learned, l.dropped)
	return l, nil
}

// keys are the follower's hash and his last message. Callers have checked both
// names.
func keys(account, openid string) []string {
	who := account + "." + openid
	return []string{redis.Tag(who, "credit"), saidKey(who)}
}

func saidKey(who string) string { return redis.Tag(who, "said") }

// Ticket is what was taken, for Back and Learn.
type Ticket struct {
	Verdict Verdict
	Till    time.Time // when the window ends; zero if that is not known
	account string
	openid  string
	message string
	at      string // the newest act then
	cause   int64
}

// Want is what is taken: N messages to a follower, who is answered for what he did
// at Cause (when that was received). Message is ours: the same one may ask again,
// also after a crash, without taking twice.
type Want struct {
	Account, OpenID, Message string
	N                        int
	Cause                    time.Time
}

// Take takes. A refused ticket has taken nothing. That Redis is away is Unknown.
func (l *Ledger) Take(ctx context.Context, w Want) Ticket {
	t := Ticket{Verdict: Unknown, account: w.Account, openid: w.OpenID, message: w.Message, cause: w.Cause.UnixMilli()}
	if l == nil {
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	v, err := take.Run(ctx, l.redis, keys(w.Account, w.OpenID), l.clock(), w.N, t.cause, w.Message)
	if said, ok := v.([]any); err == nil && ok && len(said) == 3 {
		verdict, _ := said[0].(string)
		t.Verdict = Verdict(verdict)
		t.at, _ = said[1].(string)
		till, _ := said[2].(string)
		if ms, err := strconv.ParseInt(till, 10, 64); err == nil && ms > 0 {
			t.Till = time.UnixMilli(ms)
		}
	}
	l.verdicts.WithLabelValues(w.Account, string(t.Verdict)).Inc()
	return t
}

// clock is the time to go by: ” is Redis' own, which all nodes share.
func (l *Ledger) clock() string {
	if l.now == nil {
		return ""
	}
	return strconv.FormatInt(l.now().UnixMilli(), 10)
}

// Back gives back n messages that the ticket's message took and did not use.
func (l *Ledger) Back(ctx context.Context, t Ticket, n int) {
	if l == nil || n <= 0 || t.Verdict.Refused() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.Timeout)
	defer cancel()
	_, _ = back.Run(ctx, l.redis, keys(t.account, t.openid), t.message, n) // it advises
}

// WeChat's codes for a window that is over and for one that is used up.
const (
	codeClosed = 45015
	codeUsedUp = 45047
)

// Learn hears WeChat's refusal of a message that went with this ticket, and says
// whether it was about windows; other codes are not heard.
func (l *Ledger) Learn(ctx context.Context, t Ticket, errcode int) bool {
	verdict := map[int]Verdict{codeClosed: Closed, codeUsedUp: UsedUp}[errcode]
	if l == nil || verdict == "" {
		return verdict != ""
	}
	l.learned.WithLabelValues(t.account, string(verdict)).Inc()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.Timeout)
	defer cancel()
	till := time.UnixMilli(t.cause)
	if verdict == UsedUp { // if it knows no window, it has one to remember until something happens
		till = time.Now().Add(after)
	}
	_, _ = learn.Run(ctx, l.redis, keys(t.account, t.openid), t.at, string(verdict), till.UnixMilli(), t.cause, after.Milliseconds()) // it advises
	return true
}

// Erase forgets a follower and reports whether anything was known.
func (l *Ledger) Erase(ctx context.Context, account, openid string) (bool, error) {
	if l == nil {
		return false, nil
	}
	known := false
	for _, k := range keys(account, openid) {
		found, err := l.redis.Del(ctx, k)
		if err != nil {
			return known, fault.Wrap(fault.KindOf(err), "erase credits", err)
		}
		known = known || found
	}
	return known, nil
}
