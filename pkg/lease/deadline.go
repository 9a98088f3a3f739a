package lease

import (
	"sync"
	"time"
)

// deadline is the end of a right. It has passed as soon as either clock says so:
// the monotonic clock is proof against a wall clock that steps back, the wall
// clock against a machine that was suspended, during which the monotonic clock
// stands still.
type deadline struct {
	mu sync.Mutex
	at time.Time
}

// set counts life from sent, when the request left, and keeps a tenth back for
// clocks of different speed and for the last effect under way.
func (d *deadline) set(sent time.Time, life time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = sent.Add(life - life/10)
}

func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = time.Time{}
}

func (d *deadline) get() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

func (d *deadline) passed() bool { return over(d.get(), time.Now()) }

// over compares by both clocks.
func over(end, now time.Time) bool {
	return !now.Before(end) || !now.Round(0).Before(end.Round(0))
}
