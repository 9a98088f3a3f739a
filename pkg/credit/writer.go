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

// noted is an act on its way to Redis. One block of memory serves the whole call.
type noted struct {
	call                 redis.Call
	keys                 [1]string
	args                 [5]any
	id                   string
	received, count, end int64
}

func (l *Ledger) call(a Act) *redis.Call {
	w := l.cfg.window(a)
	n := &noted{keys: [1]string{key(a.Account, a.OpenID)}, id: a.ID, received: a.ReceivedAt, count: int64(w.Count), end: w.until(a)}
	n.args = [5]any{&n.received, &n.id, &n.count, &n.end, &afterMillis}
	n.call = redis.Call{Keys: n.keys[:], Args: n.args[:]}
	return &n.call
}

var afterMillis = after.Milliseconds()

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
