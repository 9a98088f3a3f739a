package ratelimit

import (
	"context"
	"encoding/binary"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"tidegate/pkg/redis"
)

// monotonic is the clock that all processes of a machine share.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// capsChild is a node: 32 callers take permits until it is asked to stop.
func capsChild() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	f, err := os.OpenFile(os.Getenv(capsNode), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(err)
	rc := redis.DefaultConfig()
	rc.Addrs = []string{os.Getenv(capsRedis)}
	c, err := redis.Open(rc, zap.NewNop())
	must(err)
	cfg := DefaultConfig()
	cfg.MaxNodes = capsNodes
	cl, err := NewCluster(cfg, c, zap.NewNop(), nil)
	must(err)
	p := cl.Permits("caps", Limit{Rate: capsRate, Burst: capsBurst})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for {
				release, err := p.Acquire(ctx, 0)
				if err != nil {
					return
				}
				now := monotonic() // before anything that may block
				_, err = f.Write(binary.LittleEndian.AppendUint64(nil, uint64(now)))
				must(err)
				release()
			}
		})
	}
	wg.Wait()
	must(cl.Close(context.Background()))
	must(c.Close())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
