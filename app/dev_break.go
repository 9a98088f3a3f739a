package app

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// The faults that `tidegate dev --break` can inject.
const (
	breakLose    = "lose"
	breakDouble  = "double"
	breakReorder = "reorder"
)

func validBreak(kind string) error {
	switch kind {
	case "", breakLose, breakDouble, breakReorder:
		return nil
	}
	return fmt.Errorf("--break %s: use lose, double or reorder", kind)
}

// breakNth is which reply is hit: late enough for the run to be in full flow.
const breakNth = 20

// breaker stands between the robot and the queue and does exactly one kind of
// harm, once, to show that the judge sees it. It is reachable from the dev
// command only.
type breaker struct {
	kind string
	next robotPublisher
	hits atomic.Int64

	turn sync.RWMutex // held alone while two replies change places, so that no third one passes

	mu   sync.Mutex
	seen int
	held map[string]kafka.Record // reorder: the reply that waits for its user's next one
}

// robotPublisher is what the robot publishes through.
type robotPublisher interface {
	Publish(ctx context.Context, r kafka.Record) (kafka.Record, error)
}

func newBreaker(kind string, next robotPublisher) *breaker {
	return &breaker{kind: kind, next: next, held: map[string]kafka.Record{}}
}

// Publish passes everything on but the one reply it harms.
func (b *breaker) Publish(ctx context.Context, r kafka.Record) (kafka.Record, error) {
	if wire.HeaderValue(r.Headers, wire.HeaderKind) != string(wire.KindReply) {
		return b.next.Publish(ctx, r)
	}
	if first, waiting := b.takeHeld(string(r.Key)); waiting {
		return b.swap(ctx, first, r)
	}
	b.turn.RLock()
	defer b.turn.RUnlock()
	if !b.isVictim() {
		return b.next.Publish(ctx, r)
	}
	switch b.kind {
	case breakLose:
		b.hits.Add(1)
		return r, nil
	case breakReorder:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.held[string(r.Key)] = r
		return r, nil
	}
	return b.double(ctx, r)
}

// swap publishes the later of two replies of a user before the earlier one.
func (b *breaker) swap(ctx context.Context, earlier, later kafka.Record) (kafka.Record, error) {
	b.turn.Lock()
	defer b.turn.Unlock()
	if _, err := b.next.Publish(ctx, later); err != nil {
		return later, err
	}
	b.hits.Add(1)
	return b.next.Publish(ctx, earlier)
}

// double publishes the reply a second time under another id: under the same
// id the sender would see that it is the same.
func (b *breaker) double(ctx context.Context, r kafka.Record) (kafka.Record, error) {
	out, err := b.next.Publish(ctx, r)
	if err != nil {
		return out, err
	}
	reply, err := wire.Decode[wire.Reply](r.Value, r.Headers)
	if err != nil {
		return out, err
	}
	hash := idgen.HashOf(reply.ID, "doubled on purpose")
	if reply.ID, err = idgen.DeriveBeside(reply.ID, hash); err != nil {
		return out, err
	}
	reply.IdentityHash = hash.String()
	key, value, headers, err := wire.Encode(reply)
	if err != nil {
		return out, err
	}
	b.hits.Add(1)
	return b.next.Publish(ctx, kafka.Record{Topic: r.Topic, Key: key, Value: value, Headers: headers})
}

func (b *breaker) takeHeld(key string) (kafka.Record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.held[key]
	delete(b.held, key)
	return r, ok
}

func (b *breaker) isVictim() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen++
	return b.seen == breakNth
}
