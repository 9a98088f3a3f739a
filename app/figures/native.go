package figures

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"
)

// native is the system behind the guard: a call takes pace, and longer in
// proportion when more than bearable run at once. It answers with the time of the
// reading, and notes how many calls run, in all and per resource.
type native struct {
	pace     time.Duration
	bearable int
	settle   time.Time // what happens before it is not part of the steady state

	mu        sync.Mutex
	in        int
	perKey    map[string]int
	calls     int
	peak      int // at once
	steady    int // the same after settle
	steadyKey int // of one resource, after settle
}

func newNative(pace time.Duration, bearable int, settle time.Time) *native {
	return &native{pace: pace, bearable: bearable, settle: settle, perKey: map[string]int{}}
}

func (n *native) call(ctx context.Context, key string) ([]byte, error) {
	d := n.enter(key)
	defer n.leave(key)
	pause(ctx, d)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return strconv.AppendInt(nil, time.Now().UnixNano(), 10), nil
}

func (n *native) enter(key string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in++
	n.calls++
	n.perKey[key]++
	n.peak = max(n.peak, n.in)
	if time.Now().After(n.settle) {
		n.steady, n.steadyKey = max(n.steady, n.in), max(n.steadyKey, n.perKey[key])
	}
	return time.Duration(float64(n.pace) * math.Max(1, float64(n.in)/float64(n.bearable)))
}

func (n *native) leave(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in--
	n.perKey[key]--
}
