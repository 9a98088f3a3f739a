package guard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/guard"
	"tidegate/pkg/redis"
)

// B0.8: random interleavings of single calls by several nodes are compared, call
// by call, with a reference that is written from the specification. A seed is one
// interleaving; TIDEGATE_TEST_GUARD_SEEDS sets how many (the long form is 100000).
func TestModel(t *testing.T) {
	seeds, workers := 500, 2 // the embedded server works off one script at a time
	if os.Getenv("TIDEGATE_TEST_REDIS") != "" {
		seeds, workers = 3000, 8
	}
	if v := os.Getenv("TIDEGATE_TEST_GUARD_SEEDS"); v != "" {
		var err error
		seeds, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	c := opener(t)(engine(t))
	calls, did := 0, map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range workers { // each seed has a resource of its own
		wg.Go(func() {
			for seed := w; seed < seeds && !t.Failed(); seed += workers {
				m := newModel(c, uint64(seed), true)
				steps := 40
				if seed >= 3000 {
					steps = 16 // many short ones: what differs, differs early
				}
				err := m.play(t.Context(), steps)
				mu.Lock()
				assert.NoError(t, err, "seed %d", seed)
				calls += m.calls
				for what, n := range m.did {
					did[what] += n
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b := &bars{t: t}
	b.add("B0.8", "random interleavings of single script calls against a model: 0 differences", fmt.Sprintf("%d interleavings, %d calls, all as the model: %v", seeds, calls, !t.Failed()), !t.Failed())
	b.print()
	t.Log(did)
	for _, what := range []string{"HIT", "LEASE", "WAIT", "FAIL", "published", "refused", "settled", "invalidated", "lease ended", "passed", "passed late", "clock back"} {
		require.Positive(t, did[what], "the schedules must have met: %s", what)
	}
}

// The same schedules without the check of fences are caught, and soon: the model
// can tell a guard from one that is broken.
func TestModelCatchesAGuardWithoutFences(t *testing.T) {
	const within = 10 // seeds
	c := opener(t)(engine(t))
	for seed := range within {
		m := newModel(c, uint64(seed), false)
		m.only = true
		if err := m.play(t.Context(), 40); err != nil {
			require.ErrorIs(t, err, errServedOld)
			b := &bars{t: t}
			b.add("B0.8", fmt.Sprintf("without the fence check the model differs within %d seeds", within), fmt.Sprintf("at seed %d: %v", seed, err), true)
			b.print()
			return
		}
	}
	t.Fatalf("%d seeds without the fence check and nothing noticed", within)
}

var (
	errServedOld = errors.New("a value fetched before an invalidation is served after it")
	errDiffers   = errors.New("the answer is not that of the reference")
	errFenceFell = errors.New("a fence fell")
	errTwoLeases = errors.New("two valid leases")
)

// actor is one node at work on the resource.
type actor struct {
	owner   string
	fetches bool
	fence   int64
	leased  bool // with a lease; otherwise it passed through
	read    bool // the native system has answered
	value   int
}

// model is the reference and the schedule.
type model struct {
	store guard.TestStore
	cfg   guard.Config
	redis *redis.Client
	dice  *rand.Rand
	only  bool // look only at what is served, not at the reference
	back  bool // the clock steps back in this schedule, and nobody passes through

	now    time.Time
	actors [4]actor

	// The native system, and what the last invalidation said.
	version, voided int

	// What Redis must hold.
	body             int
	has              bool
	ends, failed     time.Time
	fence, gone, top int64
	holder           *actor

	calls int
	did   map[string]int
}

func newModel(c *redis.Client, seed uint64, fenced bool) *model {
	m := &model{cfg: config(), redis: c, dice: rand.New(rand.NewPCG(seed, 99)), back: seed%2 == 1, did: map[string]int{}}
	m.cfg.TTL, m.cfg.TokenTimeout = 20*time.Millisecond, 5*time.Minute
	m.now = time.UnixMicro(1_700_000_000_000_000)
	m.store = guard.NewTestStore(c, m.cfg, fmt.Sprintf("%v/%d", fenced, seed), fenced, func() time.Time { return m.now })
	for i := range m.actors {
		m.actors[i].owner = fmt.Sprint("node", i)
	}
	return m
}

func (m *model) play(ctx context.Context, steps int) error {
	for range steps {
		if err := m.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) step(ctx context.Context) error {
	m.now = m.now.Add(time.Duration(m.dice.IntN(3000)) * time.Microsecond)
	if m.back && m.dice.IntN(20) == 0 {
		m.now = m.now.Add(-time.Duration(m.dice.IntN(15)) * time.Millisecond)
		m.did["clock back"]++
	}
	switch d := m.dice.IntN(20); {
	case d == 0:
		m.version++
		return m.invalidate(ctx)
	case d == 1 && m.holder != nil:
		m.did["lease ended"]++
		m.holder = nil
		_, err := m.redis.Del(ctx, m.store.Keys()[1])
		return err
	}
	a := &m.actors[m.dice.IntN(len(m.actors))]
	switch {
	case !a.fetches && !m.back && m.dice.IntN(4) == 0: // passes through: a time before the fetch is its fence
		*a = actor{owner: a.owner, fetches: true, fence: m.now.UnixMicro()}
		return nil
	case !a.fetches:
		return m.look(ctx, a)
	case !a.read:
		a.read, a.value = true, m.version
		return nil
	case a.leased && m.dice.IntN(5) == 0:
		return m.settle(ctx, a)
	}
	return m.publish(ctx, a)
}

func (m *model) look(ctx context.Context, a *actor) error {
	m.calls++
	what, body, fence, err := m.store.Look(ctx, a.owner, "take")
	if err != nil {
		return err
	}
	m.did[what]++
	if what == "HIT" {
		if v, _ := strconv.Atoi(body); v < m.voided {
			return fmt.Errorf("%w: version %d, invalidated up to %d", errServedOld, v, m.voided)
		}
	}
	if what == "LEASE" {
		*a = actor{owner: a.owner, fetches: true, leased: true, fence: fence}
	}
	if m.only {
		return nil
	}
	want := "LEASE"
	switch {
	case m.has && m.fence > m.gone && m.ends.After(m.now):
		want = "HIT"
	case m.failed.After(m.now):
		want = "FAIL"
	case m.holder != nil && m.holder.owner != a.owner:
		want = "WAIT"
	}
	if what != want || what == "HIT" && (body != strconv.Itoa(m.body) || fence != m.fence) {
		return fmt.Errorf("%w: look gave %s %s %d, want %s %d %d", errDiffers, what, body, fence, want, m.body, m.fence)
	}
	if what == "LEASE" {
		return m.leased(a, fence)
	}
	return nil
}

func (m *model) leased(a *actor, fence int64) error {
	switch {
	case m.holder != nil && m.holder != a:
		return errTwoLeases
	case fence <= max(m.top, m.fence, m.gone):
		return fmt.Errorf("%w: %d after %d", errFenceFell, fence, max(m.top, m.fence, m.gone))
	}
	m.holder, m.top = a, fence
	return nil
}

func (m *model) publish(ctx context.Context, a *actor) error {
	m.calls++
	owner := a.owner
	if !a.leased {
		owner = ""
	}
	fresh, err := m.store.Publish(ctx, owner, a.fence, strconv.Itoa(a.value))
	if err != nil {
		return err
	}
	want := a.fence > max(m.fence, m.gone)
	m.did[map[bool]string{true: "published", false: "refused"}[fresh]]++
	if !a.leased {
		m.did[map[bool]string{true: "passed", false: "passed late"}[fresh]]++
	}
	if fresh {
		if a.value < m.voided {
			return fmt.Errorf("%w: version %d is published, invalidated up to %d", errServedOld, a.value, m.voided)
		}
		m.body, m.has, m.fence, m.ends, m.failed = a.value, true, a.fence, m.now.Add(m.cfg.TTL), time.Time{}
	}
	if m.holder == a {
		m.holder = nil // published, or refused and given up
	}
	a.fetches = false
	if !m.only && fresh != want {
		return fmt.Errorf("%w: publish with fence %d gave %v, stored %d, invalidated %d", errDiffers, a.fence, fresh, m.fence, m.gone)
	}
	return nil
}

func (m *model) settle(ctx context.Context, a *actor) error {
	m.calls++
	m.did["settled"]++
	a.fetches = false
	if m.holder == a {
		m.holder, m.failed = nil, m.now.Add(guard.FailMark)
	}
	return m.store.Settle(ctx, a.owner, a.fence)
}

func (m *model) invalidate(ctx context.Context) error {
	m.calls++
	m.did["invalidated"]++
	m.gone = max(m.top, m.gone, m.fence, m.now.UnixMicro())
	m.top, m.has, m.voided = m.gone, false, m.version
	return m.store.Invalidate(ctx)
}
