package guard

import (
	"context"
	"time"

	"tidegate/pkg/redis"
)

// FailMark is the life of the mark that TestStore.Settle leaves.
const FailMark = 5 * time.Millisecond

// TestStore gives tests the single calls that nodes make.
type TestStore struct {
	*store
	p place
}

// NewTestStore is a node's view of one resource; fenced false takes the check of
// fences out.
func NewTestStore(c *redis.Client, cfg Config, key string, fenced bool, clock func() time.Time) TestStore {
	s := &store{redis: c, scripts: newScripts(fenced), backend: cfg.Backend, cfg: cfg, clock: clock}
	return TestStore{s, s.placeOf(key, false)}
}

// Look is one look: what it found, the body, the fence.
func (s TestStore) Look(ctx context.Context, owner, what string) (found, body string, fence int64, err error) {
	a, err := s.store.look(ctx, s.p, question{owner: owner, what: what})
	return a.what, string(a.body), a.fence, err
}

// TakeLate is a look that arrives a second after anybody waits for its answer.
func (s TestStore) TakeLate(ctx context.Context, now time.Time) (string, error) {
	a, err := s.store.look(ctx, s.p, question{owner: "late", what: "take", waits: now.Add(-time.Second).UnixMicro()})
	return a.what, err
}

// LookFrom is one look without taking the lease, in a protection that began then.
func (s TestStore) LookFrom(ctx context.Context, started int64, life time.Duration) (string, error) {
	a, err := s.store.look(ctx, s.p, question{owner: "x", what: "look", started: started, life: life})
	return a.what, err
}

// Publish is one publication; an empty owner has no lease.
func (s TestStore) Publish(ctx context.Context, owner string, fence int64, body string) (bool, error) {
	return s.store.publish(ctx, s.p, owner, fence, []byte(body), 0, false)
}

// Settle ends a lease with a failure mark.
func (s TestStore) Settle(ctx context.Context, owner string, fence int64) error {
	return s.store.settle(ctx, s.p, owner, fence, failedMark, FailMark)
}

// Invalidate is one invalidation.
func (s TestStore) Invalidate(ctx context.Context) error {
	_, err := s.store.invalidate(ctx, s.p, 0)
	return err
}

// Keys are the keys of the resource: value, lease, resource.
func (s TestStore) Keys() []string { return s.store.keys(s.p) }

// Flush flushes now, as the pump does.
func (g *Guard) Flush(ctx context.Context) { g.flush(ctx) }

// Waiting is the number of callers that wait on this node.
func (g *Guard) Waiting() int { return g.View().Waiting }

var hasBody = redis.NewScript(`return redis.call('HEXISTS', KEYS[1], 'b')`)

// Keeps reports whether Redis has a personal value of the key, good or not.
func (g *Guard) Keeps(ctx context.Context, key string) (bool, error) {
	v, err := hasBody.Run(ctx, g.store.redis, g.store.keys(g.store.placeOf(key, true))[:1])
	return v == int64(1), err
}

// MaxOfPerson is how many values are kept of one person.
const MaxOfPerson = maxOfPerson
