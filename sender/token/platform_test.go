package token_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/sender/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// platform issues tokens like stable_token does: the normal mode gives the
// current token with its remaining life, and a new one in the last five
// minutes, when the old one works as well; forcing makes a new one at once.
type platform struct {
	clock *clock

	mu      sync.Mutex
	n       int
	until   time.Time
	former  string
	broken  bool // the current token is refused although it is current
	err     error
	normal  []time.Time
	forced  []time.Time
	entered chan struct{} // if set, a call announces itself …
	hold    chan struct{} // … and waits
}

func (p *platform) value() string { return fmt.Sprintf("token-%d-%0512d", p.n, p.n) }

func (p *platform) StableToken(ctx context.Context, appID, secret string, force bool) (string, time.Duration, error) {
	p.mu.Lock()
	entered, hold := p.entered, p.hold
	p.mu.Unlock()
	if entered != nil {
		entered <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
			return "", 0, ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if force {
		p.forced = append(p.forced, now)
	} else {
		p.normal = append(p.normal, now)
	}
	if p.err != nil {
		return "", 0, p.err
	}
	if p.n == 0 || force || p.until.Sub(now) <= 5*time.Minute {
		p.former = ""
		if !force && p.n > 0 && now.Before(p.until) {
			p.former = p.value()
		}
		p.n++
		p.until, p.broken = now.Add(2*time.Hour), false
	}
	return p.value(), p.until.Sub(now), nil
}

// invalidate is what another system does: it forces a refresh.
func (p *platform) invalidate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	p.until, p.former, p.broken = p.clock.Now().Add(2*time.Hour), "", false
}

func (p *platform) breakCurrent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
}

func (p *platform) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// use is an API call with the token.
func (p *platform) use(t token.Token) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return t.Value == p.value() && !p.broken && p.clock.Now().Before(p.until) || t.Value != "" && t.Value == p.former
}

func (p *platform) calls() (normal, forced int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.normal), len(p.forced)
}

var shop = token.Account{Name: "shop", AppID: "wx9f3c7b21d08e4a56", Secret: "0123456789abcdef0123456789abcdef"}

// server is Redis: a real one where the environment names it.
type server struct {
	mem    *redismem.Server
	client *redis.Client
}

func startRedis(t *testing.T, embedded bool) *server {
	t.Helper()
	s := &server{}
	addr := os.Getenv("TIDEGATE_TEST_REDIS")
	if embedded || addr == "" {
		var err error
		s.mem, err = redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(s.mem.Close)
		addr = s.mem.Addr()
	}
	cfg := redis.DefaultConfig()
	cfg.Addrs = []string{addr}
	cfg.Prefix = fmt.Sprintf("t%d", time.Now().UnixNano())
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	s.client = c
	return s
}

type node struct {
	*token.Keeper
	reg *prometheus.Registry
	log *observer.ObservedLogs
}

func newNode(t *testing.T, p *platform, r *server, change ...func(*token.Options)) node {
	t.Helper()
	return newNodeOver(t, p, p.clock, r, change...)
}

func newNodeOver(t *testing.T, p token.Caller, c *clock, r *server, change ...func(*token.Options)) node {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	reg := prometheus.NewRegistry()
	opt := token.Options{Judge: token.JudgeWeChat, Now: c.Now}
	for _, f := range change {
		f(&opt)
	}
	var shared *token.Shared
	if r != nil {
		shared = token.NewShared(r.client)
	}
	k, err := token.New(p, shared, opt, zap.New(core), reg)
	require.NoError(t, err)
	k.SetAccounts([]token.Account{shop})
	return node{k, reg, logs}
}

// send uses the account like a sender does: after a rejection it tries with
// the token that another node has, and once more with a renewed one.
func send(ctx context.Context, p *platform, n node) error {
	tok, err := n.Token(ctx, "shop")
	if err != nil {
		return err
	}
	for range 2 {
		if p.use(tok) {
			return nil
		}
		if tok, err = n.Rejected(ctx, "shop", tok); err != nil {
			return err
		}
	}
	if !p.use(tok) {
		return errors.New("the token after a renewal was refused")
	}
	return nil
}

// counter finds the one series of a counter.
func counter(t *testing.T, reg *prometheus.Registry, name string) prometheus.Collector {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "copy"})
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				c.Add(m.GetCounter().GetValue())
			}
		}
	}
	return c
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
