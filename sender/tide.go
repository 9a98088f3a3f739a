package sender

import (
	"context"
	"sync"
	"time"

	"tidegate/pkg/ratelimit"
)

// Numbers of the tide.
const (
	// slowAnswer and slowTimes: an answer is slow if it took longer than both.
	slowAnswer = 300 * time.Millisecond
	slowTimes  = 4 // of the usual time
	// ebb is what is left after a slow answer, least how few places there ever are.
	ebb   = 0.75
	least = 2
	// usualEvery is how long the shortest answer is looked for that is then the
	// usual time. It rises by slowTimes at most, from where answers begin to count
	// as slow: a WeChat that has become slower for good is taken as it is after
	// half a minute, and is not worked with the fewest places for minutes.
	usualEvery = 10 * time.Second
	// manyPlaces stands for "no cap".
	manyPlaces = workersMost
)

// tide is how many requests of a road are under way at once on this node: the
// cap, and less while WeChat is slow, so that a WeChat in trouble is not asked by
// everybody at once and few messages hang when it fails. It is additive increase,
// multiplicative decrease (Chiu and Jain, 1989) with answers that take much
// longer than usual as the sign. It delays and never drops.
type tide struct {
	gate ratelimit.Permits // in order of priority
	cap  ratelimit.Permits // of all senders together

	mu    sync.Mutex
	most  int
	now   float64       // places
	usual time.Duration // of an answer, the shortest of late
	low   time.Duration // the shortest since
	since time.Time
	cutAt time.Time
}

func newTide(shared ratelimit.Permits, places int) *tide {
	t := &tide{cap: shared, most: placesOf(places)}
	t.now = float64(t.most)
	t.gate = ratelimit.New(ratelimit.Limit{Concurrency: t.most})
	return t
}

func placesOf(concurrency int) int {
	if concurrency == 0 {
		return manyPlaces
	}
	return concurrency
}

// heard learns from an answer, however it read, and from a wait in vain.
func (t *tide) heard(took time.Duration, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.follow(took, at)
	before := int(t.now)
	if took > max(slowAnswer, slowTimes*t.usual) {
		if at.Add(-took).Before(t.cutAt) {
			return // it left before the last cut: all of one moment are one sign
		}
		t.now, t.cutAt = max(min(least, float64(t.most)), t.now*ebb), at
	} else {
		t.now = min(float64(t.most), t.now+1/t.now) // one more in each round
	}
	if int(t.now) != before {
		t.gate.SetLimit(ratelimit.Limit{Concurrency: int(t.now)})
	}
}

// follow keeps the usual time: the shortest answer of the last usualEvery.
func (t *tide) follow(took time.Duration, at time.Time) {
	if t.usual == 0 || took < t.usual {
		t.usual, t.low, t.since = took, took, at
		return
	}
	if t.low = min(t.low, took); at.Sub(t.since) >= usualEvery {
		t.usual = min(t.low, slowTimes*max(t.usual, slowAnswer/slowTimes))
		t.low, t.since = took, at
	}
}

// places is how many there are now.
func (t *tide) places() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.now)
}

// Acquire implements ratelimit.Permits: a place here, then one of the cap.
func (t *tide) Acquire(ctx context.Context, priority int) (release func(), err error) {
	here, err := t.gate.Acquire(ctx, priority)
	if err != nil {
		return nil, err
	}
	all, err := t.cap.Acquire(ctx, priority)
	if err != nil {
		here()
		return nil, err
	}
	return func() { all(); here() }, nil
}

// TryTake implements ratelimit.Permits.
func (t *tide) TryTake() bool {
	if !t.gate.TryTake() {
		return false
	}
	if t.cap.TryTake() {
		return true
	}
	t.gate.Back()
	return false
}

// Back implements ratelimit.Permits.
func (t *tide) Back() {
	t.cap.Back()
	t.gate.Back()
}

// SetLimit implements ratelimit.Permits. A cap that was lowered holds at once; one
// that was raised is there as far as WeChat answers well.
func (t *tide) SetLimit(l ratelimit.Limit, how ...ratelimit.Change) {
	t.mu.Lock()
	full := t.now >= float64(t.most)
	t.most = placesOf(l.Concurrency)
	if t.now = min(t.now, float64(t.most)); full {
		t.now = float64(t.most)
	}
	t.gate.SetLimit(ratelimit.Limit{Concurrency: int(t.now)})
	t.mu.Unlock()
	t.cap.SetLimit(l, how...)
}

// Close implements ratelimit.Permits.
func (t *tide) Close() {
	t.gate.Close()
	t.cap.Close()
}
