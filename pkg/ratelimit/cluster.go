package ratelimit

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/redis"
)

// Cluster makes caps that hold over all processes which name them.
type Cluster struct {
	cfg  Config
	log  *zap.Logger
	m    *meters
	open func(name string) exchange

	mu     sync.Mutex
	caps   map[*Shared]struct{}
	closed bool
}

// NewCluster prepares caps over a Redis, which may be away.
func NewCluster(cfg Config, c *redis.Client, log *zap.Logger, reg prometheus.Registerer) (*Cluster, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if c == nil {
		return nil, errors.New("shared permits: no Redis client")
	}
	if log == nil {
		log = zap.NewNop()
	}
	open := func(name string) exchange { return newStore(c, name, cfg.PlaceLife).ask }
	return &Cluster{cfg: cfg, log: log, m: newMeters(reg), open: open, caps: map[*Shared]struct{}{}}, nil
}

// Permits joins the cap called name, the same name in all processes. It does not
// wait for Redis. A limit's StartFull is not looked at: over the cluster nobody
// knows what went out a moment ago.
func (c *Cluster) Permits(name string, l Limit) *Shared {
	l = l.clamp()
	begin := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	s := &Shared{
		name: name, node: rand.Text(), cfg: c.cfg, log: c.log, stats: c.m.of(name), exchange: c.open(name),
		now:   func() int64 { return int64(time.Since(begin)) },
		ahead: func() int64 { return ahead(begin) },
		stop:  stop, kick: make(chan struct{}, 1), own: l, askedAt: -int64(beat),
	}
	s.desk = s
	if share := newShare(l, c.cfg.MaxNodes, 0); share.paused && (l.Rate > 0 || l.Concurrency > 0) {
		c.log.Info("while Redis is away this cap lets nothing through: its burst or concurrency is below permits.max_nodes",
			zap.String("cap", name), zap.Int("max_nodes", c.cfg.MaxNodes))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // whoever asks is sent away
		stop()
		s.mu.Lock()
		s.shut()
		s.mu.Unlock()
	}
	for old := range c.caps {
		old.mu.Lock()
		if old.closed {
			delete(c.caps, old)
		}
		old.mu.Unlock()
	}
	c.caps[s] = struct{}{}
	s.done.Go(func() { s.keep(ctx) })
	return s
}

// ahead is how far the wall clock has run ahead of the monotonic one since begin.
func ahead(begin time.Time) int64 {
	now := time.Now()
	return int64(now.Round(0).Sub(begin.Round(0)) - now.Sub(begin))
}

// Close closes all caps that are still open.
func (c *Cluster) Close(context.Context) error {
	c.mu.Lock()
	c.closed = true
	caps := c.caps
	c.caps = map[*Shared]struct{}{}
	c.mu.Unlock()
	var wg sync.WaitGroup
	for s := range caps {
		wg.Go(s.Close)
	}
	wg.Wait()
	return nil
}
