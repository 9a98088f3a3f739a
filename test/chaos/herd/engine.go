//go:build linux

package herd

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
)

// Engine is a real engine or a broker of ours that a test may kill: its data
// outlives it, and it comes back on the same address.
type Engine struct {
	*Process
	Addr string
	// Real tells the broker of Apache from the embedded one.
	Real bool
}

// engineScript runs an engine in the foreground.
const engineScript = "test/chaos/engine"

// Kafka starts Apache Kafka with a data folder of its own.
func (h *Herd) Kafka(root string) *Engine {
	h.tb.Helper()
	addr := FreeAddr(h.tb)
	e := &Engine{Addr: addr, Real: true}
	e.Process = h.Start(h.engine(root, "kafka", addr, func(ctx context.Context) error { return AskKafka(ctx, addr) }))
	return e
}

// Redis starts a Redis with an append-only file.
func (h *Herd) Redis(root string) *Engine {
	h.tb.Helper()
	addr := FreeAddr(h.tb)
	e := &Engine{Addr: addr, Real: true}
	e.Process = h.Start(h.engine(root, "redis", addr, func(ctx context.Context) error { return AskRedis(ctx, addr) }))
	return e
}

// Node starts the embedded broker as a process.
func (h *Herd) Node(b *Builds) *Engine {
	h.tb.Helper()
	path, err := b.Make("./test/chaos/kafkanode", "")
	if err != nil {
		h.tb.Fatal(err)
	}
	e := &Engine{Addr: FreeAddr(h.tb)}
	e.Process = h.Start(Spec{
		Name: "kafkanode", Path: path, Args: []string{"-dir", filepath.Join(h.Dir, "kafkanode"), "-addr", e.Addr}, Tries: 2,
		Ready: func(ctx context.Context) error { return AskKafka(ctx, e.Addr) },
	})
	return e
}

func (h *Herd) engine(root, name, addr string, ready func(context.Context) error) Spec {
	_, port, _ := strings.Cut(addr, ":")
	return Spec{
		Name: name, Path: filepath.Join(root, engineScript), Args: []string{name, port},
		Env:   []string{"TIDEGATE_ENGINES_DIR=" + filepath.Join(h.Dir, "engines")},
		Ready: ready, Patience: 90 * time.Second, Tries: 3, AnyExit: true,
	}
}

// AskKafka tells whether a broker serves: it answers who its controller is.
func AskKafka(ctx context.Context, addr string) error {
	cfg := kafka.DefaultConfig()
	cfg.Brokers, cfg.DialTimeout, cfg.RequestTimeout = []string{addr}, time.Second, time.Second
	a, err := kafka.NewAdmin(cfg)
	if err != nil {
		return err
	}
	info, err := a.Cluster(ctx)
	if err == nil && len(info.Brokers) == 0 {
		err = errors.New("no broker has registered")
	}
	return errors.Join(err, a.Close())
}

// AskRedis tells whether a Redis serves; while it reads its file back it does
// not.
func AskRedis(ctx context.Context, addr string) error {
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout = []string{addr}, time.Second
	c, err := redis.Open(cfg, zap.NewNop())
	if err != nil {
		return err
	}
	_, _, err = c.Get(ctx, "herd")
	return errors.Join(err, c.Close())
}
