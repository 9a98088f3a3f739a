package kafka_test

import (
	"strconv"
	"sync"
	"testing"

	"tidegate/pkg/kafka"
)

// ledger books what was handled: each key's values must come as 0, 1, 2 …; a
// repeat after a rebalance may start again at most where nothing was lost, that
// is at a value that was seen before.
type ledger struct {
	t     *testing.T
	mu    sync.Mutex
	seen  map[string]int // per key: highest value + 1
	total int            // first sights
	jumps int            // values that came before their predecessor
	who   map[string]int
	goals map[int]chan struct{}
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t: t, seen: map[string]int{}, who: map[string]int{}, goals: map[int]chan struct{}{}}
}

func (l *ledger) note(who, key string, r kafka.Record) {
	n, err := strconv.Atoi(string(r.Value))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.t.Errorf("value %q", r.Value)
		return
	}
	l.who[who]++
	switch want := l.seen[key]; {
	case n > want:
		l.jumps++
		l.t.Errorf("key %s: %d came before %d", key, n, want)
	case n == want:
		l.seen[key]++
		l.total++
		if ch := l.goals[l.total]; ch != nil {
			close(ch)
			delete(l.goals, l.total)
		}
	}
}

// reached gives a channel that is closed when so many records were seen.
func (l *ledger) reached(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := make(chan struct{})
	if l.total >= n {
		close(ch)
	} else {
		l.goals[n] = ch
	}
	return ch
}

func (l *ledger) back() int         { l.mu.Lock(); defer l.mu.Unlock(); return l.jumps }
func (l *ledger) by(who string) int { l.mu.Lock(); defer l.mu.Unlock(); return l.who[who] }
