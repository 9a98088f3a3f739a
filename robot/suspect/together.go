package suspect

import (
	"context"
	"sync"
)

// together writes down what many workers have in hand in one round trip: what
// comes while one is under way goes with the next. Workers take records faster
// than Redis can be asked one by one, and each waits until its own is written.
//
// It has no goroutine: of those who wait for the next round trip the first one
// makes it for all. So whoever asks waits for two round trips as a rule, each of
// which patience bounds.
type together struct {
	write func(ctx context.Context, records []entry) (mine bool, err error)

	mu    sync.Mutex
	under bool     // a round trip is under way, or somebody was told to make one
	next  []*asker // of the next one
}

// most bounds the records of one round trip.
const most = 256

type asker struct {
	entry
	mine bool
	err  error
	turn chan bool // true: make the round trip; false: it is made
}

func (t *together) run(e entry) (mine bool, err error) {
	a := &asker{entry: e, turn: make(chan bool, 2)}
	t.mu.Lock()
	t.next = append(t.next, a)
	if !t.under {
		t.under = true
		a.turn <- true
	}
	t.mu.Unlock()
	for <-a.turn {
		t.ask()
	}
	return a.mine, a.err
}

// ask makes a round trip, of which the caller is the first, and tells the first
// of the next one to make that.
func (t *together) ask() {
	t.mu.Lock()
	n := min(len(t.next), most)
	batch := t.next[:n:n]
	t.next = t.next[n:]
	t.mu.Unlock()

	records := make([]entry, n)
	for i, a := range batch {
		records[i] = a.entry
	}
	// It is many workers' question: it does not end with the work of one of them.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	mine, err := t.write(ctx, records)
	cancel()
	for _, a := range batch {
		a.mine, a.err = mine, err
		a.turn <- false // has room: each is told once to ask at most, and once that it is made
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.next) == 0 {
		t.under, t.next = false, nil
		return
	}
	t.next[0].turn <- true
}
