package token

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/run"
	"tidegate/pkg/telemetry"
)

// Options tune the keeper. Zero values take the defaults.
type Options struct {
	// Ahead is how long before its end a token is renewed. Default 4m50s:
	// WeChat makes the new one five minutes before the end.
	Ahead time.Duration
	// MinInterval is the least time between two renewals after rejections,
	// and between two forced refreshes. Default 30 s, WeChat's own rule.
	MinInterval time.Duration
	// ForcedPerDay bounds forced refreshes over all nodes. Default 20.
	ForcedPerDay int
	// ForcedAlone bounds them on this node while Redis is away. Default 5.
	ForcedAlone int
	// CallTimeout bounds one call to WeChat. Default 5 s.
	CallTimeout time.Duration
	// Lease bounds how long a refresher that died holds up the others. It must
	// outlive the two calls of one refresh. Default 15 s.
	Lease time.Duration
	// Tick is how often Run looks for tokens that are due. Default 5 s.
	Tick time.Duration
	// Judge reads the errors of the Caller. Required.
	Judge func(error) Verdict
	// Told hears that an account has got no token failures times in a row, and
	// why, and that it has one again (failures is 0, why is empty). stop says that
	// WeChat refuses the account. It must neither wait nor call the keeper; nil
	// hears nothing.
	Told func(account string, failures int, stop bool, why string)
	// Now is the clock; nil means the real one.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	def(&o.Ahead, 290*time.Second)
	def(&o.MinInterval, 30*time.Second)
	def(&o.ForcedPerDay, 20)
	def(&o.ForcedAlone, 5)
	def(&o.CallTimeout, 5*time.Second)
	def(&o.Lease, max(15*time.Second, 2*o.CallTimeout+5*time.Second))
	def(&o.Tick, 5*time.Second)
	if o.Told == nil {
		o.Told = func(string, int, bool, string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// parallelRenewals bounds how many accounts one tick renews at once.
const parallelRenewals = 8

// Keeper gives access tokens. It is safe for concurrent use.
type Keeper struct {
	call   Caller
	shared *Shared // nil: this node is alone by configuration
	opt    Options
	log    *zap.Logger
	met    *metrics

	mu      sync.Mutex
	holders map[string]*holder
}

// New makes a keeper. shared may be nil where there is no Redis.
func New(call Caller, shared *Shared, opt Options, log *zap.Logger, reg prometheus.Registerer) (*Keeper, error) {
	if opt.Judge == nil {
		return nil, fault.New(fault.Internal, "new token keeper", "no judge of errors")
	}
	met, err := newMetrics(telemetry.Registerer(reg))
	if err != nil {
		return nil, fmt.Errorf("new token keeper: %w", err)
	}
	return &Keeper{
		call: call, shared: shared, opt: opt.withDefaults(), met: met,
		log: log.Named("token"), holders: map[string]*holder{},
	}, nil
}

// SetAccounts replaces the accounts. An account with new credentials is asked
// again at once, even if it was stopped.
func (k *Keeper) SetAccounts(accounts []Account) {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := make(map[string]*holder, len(accounts))
	for _, a := range accounts {
		h := k.holders[a.Name]
		if h == nil || h.account != a {
			h = newHolder(a)
		}
		next[a.Name] = h
	}
	for name := range k.holders {
		if next[name] == nil {
			k.met.forget(name)
		}
	}
	k.holders = next
}

// Name implements run.Service.
func (k *Keeper) Name() string { return "token keeper" }

// Run fetches tokens before they are needed, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	run.Every(ctx, k.opt.Tick, k.renewDue)
	return nil
}

func (k *Keeper) renewDue(ctx context.Context) {
	k.mu.Lock()
	all := make([]*holder, 0, len(k.holders))
	for _, h := range k.holders {
		all = append(all, h)
	}
	k.mu.Unlock()
	places := make(chan struct{}, parallelRenewals)
	var wg sync.WaitGroup
	for _, h := range all {
		if !h.due(k.opt.Now(), k.opt.Ahead) {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			// The failure is logged and kept where it is made.
			_, _ = k.renew(ctx, h, reason{ahead: true})
		})
	}
	wg.Wait()
}

// Token gives a token that nobody has rejected yet. Errors: fault.NotFound
// (no such account), fault.Stopped (WeChat refuses the account),
// fault.Limited and fault.Unavailable, all with a hint when to ask again.
func (k *Keeper) Token(ctx context.Context, account string) (Token, error) {
	h, err := k.holder(account)
	if err != nil {
		return Token{}, err
	}
	if t, ok := h.usable(k.opt.Now(), reason{}); ok {
		return t, nil
	}
	return k.renew(ctx, h, reason{})
}

// Rejected reports that WeChat refused the token (40001, 40014, 42001) and
// gives another one. A rejection of a token that is no longer the current one
// changes nothing. Errors are those of Token.
func (k *Keeper) Rejected(ctx context.Context, account string, used Token) (Token, error) {
	h, err := k.holder(account)
	if err != nil {
		return Token{}, err
	}
	k.met.rejections.WithLabelValues(account).Inc()
	h.reject(used.Value)
	return k.renew(ctx, h, reason{})
}

// Stopped lists the accounts that WeChat refuses, with the reason in words,
// for the operations listener.
func (k *Keeper) Stopped() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]string{}
	for name, h := range k.holders {
		if why := h.stopReason(); why != "" {
			out[name] = why
		}
	}
	return out
}

// Has tells whether an account is configured.
func (k *Keeper) Has(account string) bool {
	_, err := k.holder(account)
	return err == nil
}

func (k *Keeper) holder(account string) (*holder, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.holders[account]
	if h == nil {
		return nil, fault.New(fault.NotFound, "token of "+account, "the account is not configured")
	}
	return h, nil
}
