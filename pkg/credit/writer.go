package credit

import (
	"context"
	"slices"
	"strconv"
	"time"

	"tidegate/pkg/redis"
)

const (
	// waiting is how many acts may wait for Redis.
	waiting = 8192
	// batch is how many go in one round trip.
	batch = 256
	// pace is the pause after one that was not full. Acts come one by one, and a
	// round trip for each costs more than the act; the ledger lets a reply go that
	// answers an act which is not there yet.
	pace = 5 * time.Millisecond
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
	w := newWriter(l)
	rest := time.NewTimer(pace)
	defer rest.Stop()
	for {
		select {
		case a := <-l.acts:
			w.work(context.WithoutCancel(ctx), a)
			if len(l.acts) < batch {
				rest.Reset(pace)
				select {
				case <-rest.C:
				case <-ctx.Done():
				}
			}
		case <-ctx.Done():
			w.flush(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// writer brings acts to Redis in batches: messages as plain values, each of which
// replaces the one before, everything else by the script. Both parts of a batch
// leave one after the other, so a follower who has an act in one has none in the
// other: his acts stay in their order.
type writer struct {
	l      *Ledger
	room   [batch]redis.Setting
	said   []*redis.Setting
	others []*redis.Call
	says   map[string]bool // who is in the batch, and whether with messages
}

func newWriter(l *Ledger) *writer { return &writer{l: l, says: make(map[string]bool, batch)} }

// flush writes down what waits at the end, as far as there is time.
func (w *writer) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case a := <-w.l.acts:
			w.work(ctx, a)
		default:
			return
		}
	}
}

// work writes a and what has come while the last batch was out.
func (w *writer) work(ctx context.Context, a Act) {
	for more := true; more; {
		if !w.add(a) {
			w.write(ctx)
			w.add(a)
		}
		if len(w.said)+len(w.others) == batch {
			break
		}
		select {
		case a = <-w.l.acts:
		default:
			more = false
		}
	}
	w.write(ctx)
}

// add puts an act into the batch; false means that the batch must be written before.
func (w *writer) add(a Act) bool {
	who := a.Account + "." + a.OpenID
	if says, known := w.says[who]; known && says != a.says() {
		return false
	}
	w.says[who] = a.says()
	win := w.l.cfg.window(a)
	until := win.until(a)
	if !a.says() {
		w.others = append(w.others, &redis.Call{Keys: keys(a.Account, a.OpenID), Args: []any{a.ReceivedAt, a.ID, win.Count, until}})
		return true
	}
	s := &w.room[len(w.said)]
	*s = redis.Setting{Key: saidKey(who), Value: saying(a, win.Count, until), TTL: time.Duration(until-a.ReceivedAt)*time.Millisecond + after}
	w.said = append(w.said, s)
	return true
}

// saying is a message as the scripts read it (hear).
func saying(a Act, count int, until int64) string {
	var room [128]byte
	b := room[:0]
	b = append(strconv.AppendInt(b, a.ReceivedAt, 10), ' ')
	b = append(strconv.AppendInt(b, int64(count), 10), ' ')
	b = append(strconv.AppendInt(b, until, 10), ' ')
	return string(append(b, a.ID...))
}

// patience is how long one batch may take: acts of a moment ago are worth little.
const patience = time.Second

// write sends the batch and empties it. What fails is sent once more: an act is
// noted once, however often it is told.
func (w *writer) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for range 2 {
		if len(w.said) > 0 {
			w.l.redis.SetAll(ctx, w.said)
		}
		if len(w.others) > 0 {
			note.RunAll(ctx, w.l.redis, w.others)
		}
		w.said = slices.DeleteFunc(w.said, func(s *redis.Setting) bool { return s.Err == nil })
		w.others = slices.DeleteFunc(w.others, func(c *redis.Call) bool { return c.Err == nil })
		if len(w.said)+len(w.others) == 0 {
			break
		}
	}
	w.l.dropped.Add(float64(len(w.said) + len(w.others)))
	w.said, w.others = w.said[:0], w.others[:0]
	clear(w.says)
}
