package robot

import (
	"sync"
	"time"

	"tidegate/robot/engine"
)

// places are the workers of one account. Whoever waits for a permit keeps one;
// while all are taken nobody looks at the queue, and what is vital waits there
// behind everything else. So each level may keep the less of them the less urgent
// it is, whatever its patience says.
type places struct {
	total int
	now   func() time.Duration // never 0, which says "not"

	mu      sync.Mutex
	taken   int
	crowded [engine.Levels]time.Duration // since when more than the level's share are taken; 0: not
}

// shares are the parts of the places, in twentieths, above which a level is
// refused. Vital callbacks are not refused for want of a place.
var shares = [engine.Levels]int{engine.Vital: 20, engine.Query: 18, engine.Event: 15, engine.Marketing: 10}

// crowdedFor is how long a level's share must have been exceeded: a burst that is
// taken in one go is no overload.
const crowdedFor = 500 * time.Millisecond

func newPlaces(total int) *places {
	begin := time.Now()
	return &places{total: total, now: func() time.Duration { return time.Since(begin) + 1 }}
}

// take gives a place, unless the level has to stay out.
func (p *places) take(level engine.Level) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if since := p.crowded[level]; level != engine.Vital && since != 0 && now-since >= crowdedFor {
		return false
	}
	p.taken++
	for i := range p.crowded {
		if p.crowded[i] == 0 && p.over(i) {
			p.crowded[i] = now
		}
	}
	return true
}

func (p *places) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	for i := range p.crowded {
		if !p.over(i) {
			p.crowded[i] = 0
		}
	}
}

func (p *places) over(level int) bool { return 20*p.taken > p.total*shares[level] }
