package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"tidegate/pkg/redis"
)

// Run waits for the lease and calls fn while it is held, renewing it every third
// of its life. When the lease is lost, fn's context ends with ErrLost as cause;
// once fn has returned Run waits for the lease again. Run returns when fn returns
// while the lease is held (with fn's error), or when ctx ends (with nil). The
// lease is released on the way out.
//
// An fn that does not return when its context ends keeps running without the
// lease: check Valid before each effect and pass the fence on.
func Run(ctx context.Context, c *redis.Client, name string, ttl time.Duration, fn func(ctx context.Context, l *Lease) error) error {
	for {
		l, err := Acquire(ctx, c, name, ttl)
		if err == nil {
			lost, err := hold(ctx, l, fn)
			if !lost || ctx.Err() != nil {
				return err
			}
			continue
		}
		if !wait(ctx, ttl/3) {
			return nil
		}
	}
}

// hold runs fn under l. lost reports that fn ended because the lease did.
func hold(ctx context.Context, l *Lease, fn func(context.Context, *Lease) error) (lost bool, err error) {
	under, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() { ended <- fn(under, l) }()
	lost = keep(under, l, cancel, ended, &err)
	cancel(nil)
	if !lost {
		// The caller's context may be over; giving back is still tried, briefly.
		// If it fails the lease ends by itself.
		brief, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		_ = l.Release(brief)
	}
	return lost, err
}

// keep renews l until fn has ended, and puts fn's error into err.
func keep(ctx context.Context, l *Lease, cancel context.CancelCauseFunc, ended <-chan error, err *error) (lost bool) {
	renew := time.NewTicker(l.ttl / 3)
	defer renew.Stop()
	stop := time.NewTimer(time.Until(l.Until()))
	defer stop.Stop()
	for {
		select {
		case *err = <-ended:
			return false
		case <-renew.C:
			limited, done := context.WithDeadline(ctx, l.Until())
			e := l.Renew(limited)
			done()
			switch {
			case e == nil:
				stop.Reset(time.Until(l.Until()))
				continue
			case !errors.Is(e, ErrLost):
				continue // Redis did not answer; the lease is good until stop
			}
		case <-stop.C:
		}
		cancel(ErrLost)
		*err = <-ended
		return true
	}
}

// wait sleeps for d give or take a fifth, so that candidates do not march in
// step, and reports false if ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	d = d*4/5 + rand.N(d*2/5+1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
