package robot

import (
	"encoding/hex"
	"sync"
	"time"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
)

// place names a record. The time tells a topic that was made anew from the
// one before it.
type place struct {
	topic     string
	partition int32
	offset    int64
	at        int64
}

func placeOf(r kafka.Record) place {
	return place{r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli()}
}

type part struct {
	topic     string
	partition int32
}

// recent remembers the identities of callbacks that this process finished,
// the newest of each partition (D7). It saves work after a rebalance and after
// a repeat that the door could not recognise; correctness does not rest on it.
// The hashes are kept as bytes: tens of thousands of them are nothing that the
// garbage collector has to look at.
type recent struct {
	size int
	mu   sync.Mutex
	byID map[part]*ring
}

type ring struct {
	known map[idgen.Hash]struct{}
	order []idgen.Hash
	next  int
}

func newRecent(size int) *recent { return &recent{size: size, byID: map[part]*ring{}} }

// hashOf reads an identity's hash. What is none is never remembered.
func hashOf(identity string) (h idgen.Hash, ok bool) {
	if len(identity) != 2*len(h) {
		return h, false
	}
	n, err := hex.Decode(h[:], []byte(identity))
	return h, err == nil && n == len(h)
}

func (r *recent) seen(rec kafka.Record, identity string) bool {
	h, ok := hashOf(identity)
	if !ok {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.byID[part{rec.Topic, rec.Partition}]
	if g == nil {
		return false
	}
	_, ok = g.known[h]
	return ok
}

func (r *recent) add(rec kafka.Record, identity string) {
	h, ok := hashOf(identity)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := part{rec.Topic, rec.Partition}
	g := r.byID[p]
	if g == nil {
		g = &ring{known: map[idgen.Hash]struct{}{}}
		r.byID[p] = g
	}
	if _, ok := g.known[h]; ok {
		return
	}
	g.known[h] = struct{}{}
	if len(g.order) < r.size {
		g.order = append(g.order, h)
		return
	}
	delete(g.known, g.order[g.next])
	g.order[g.next] = h
	g.next = (g.next + 1) % r.size
}

// maxPending bounds what was decided and could not be published. Beyond it
// callbacks are simply worked again.
const maxPending = 10_000

// pending keeps outcomes whose letters could not be published, so that the
// next try publishes the same ones and asks no back end again.
type pending struct {
	mu sync.Mutex
	m  map[place]*outcome
}

func newPending() *pending { return &pending{m: map[place]*outcome{}} }

func (p *pending) take(at place) *outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.m) == 0 { // as always but in trouble
		return nil
	}
	o := p.m[at]
	delete(p.m, at)
	return o
}

func (p *pending) keep(at place, o *outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.m) < maxPending {
		p.m[at] = o
	}
}

// forget drops what belongs to a partition that somebody else works now.
func (p *pending) forget(topic string, partition int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.m {
		if at.topic == topic && at.partition == partition {
			delete(p.m, at)
		}
	}
}

// age is how long something has been going on; zero means not yet.
func age(since, now time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return now.Sub(since)
}
