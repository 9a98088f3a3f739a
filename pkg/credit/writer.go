package credit

import (
	"context"
	"time"

	"tidegate/pkg/redis"
)

const (
	// waiting is how many acts may wait for Redis.
	waiting = 8192
	// batch is how many go in one round trip.
	batch = 256
)

// Note hears what a follower did. It never waits: an act that finds no room is
// dropped, and the ledger does not know it.
func (l *Ledger) Note(a Act) {
	if l == nil || a.OpenID == "" || l.cfg.window(a).Count == 0 {
		return
	}
	select {
	case l.acts <- a:
	default:
		l.dropped.Inc()
	}
}

// Name implements run.Service.
func (l *Ledger) Name() string { return "reply credits" }

// Run writes acts down until ctx ends, and then what is still waiting. Processes
// that only take need not run it.
func (l *Ledger) Run(ctx context.Context) error {
	for {
		select {
		case a := <-l.acts:
			l.write(context.WithoutCancel(ctx), l.gather(a))
		case <-ctx.Done():
			l.flush(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// flush writes down what waits at the end, as far as there is time.
func (l *Ledger) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case a := <-l.acts:
			l.write(ctx, l.gather(a))
		default:
			return
		}
	}
}

// gather takes what has come while the last batch was out.
func (l *Ledger) gather(first Act) []*redis.Call {
	calls := []*redis.Call{l.call(first)}
	for len(calls) < batch {
		select {
		case a := <-l.acts:
			calls = append(calls, l.call(a))
		default:
			return calls
		}
	}
	return calls
}

func (l *Ledger) call(a Act) *redis.Call {
	return &redis.Call{Keys: []string{key(a.Account, a.OpenID)}, Args: l.args(a)}
}

// patience is how long one batch may take: acts of a moment ago are worth little.
const patience = time.Second

func (l *Ledger) write(ctx context.Context, calls []*redis.Call) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	note.RunAll(ctx, l.redis, calls)
	again := calls[:0]
	for _, c := range calls {
		if c.Err != nil {
			c.Err = nil
			again = append(again, c)
		}
	}
	note.RunAll(ctx, l.redis, again) // once more: an act is noted once, however often it is told
	for _, c := range again {
		if c.Err != nil {
			l.dropped.Inc()
		}
	}
}
