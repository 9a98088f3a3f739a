package ratelimit

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/redis"
)

// Random clusters: nodes come, go and sleep, Redis loses data, its clock steps
// back, answers take their time, callers give up. No window holds too many. What a
// clock put forward lets through is not promised (docs/caps.md).
func TestSharedHoldsInEveryWindow(t *testing.T) {
	t.Parallel()
	addr := startRedis(t).Addr()
	rapid.Check(t, func(r *rapid.T) {
		if bad := history(t, r, addr, askScript, events); bad != "" {
			r.Fatal(bad)
		}
	})
}

// The model can tell: when slots do not pay for the life of a permit, when a loss
// is not waited out, or when a lower limit does not wait for what went out, it
// finds a window.
func TestSharedModelCanFail(t *testing.T) {
	if underRace {
		t.Skip("it is about the model, and takes ten times as long under the race detector")
	}
	t.Parallel()
	addr := startRedis(t).Addr()
	for what, change := range map[string][2]string{
		"a permit's life is not paid for": {"local slack = math.floor(math.max(spread - J, 0))", "local slack = math.floor(spread)"},
		"a change of nodes costs nothing": {"local pen = math.ceil(math.max(J - spread, 0))", "local pen = 0"},
		"a loss begins with a burst":      {"if cold then fresh = now + settle", "if cold then fresh = now - slack - pu"},
	} {
		text := strings.Replace(askText, change[0], change[1], 1)
		require.NotEqual(t, askText, text, what)
		script := redis.NewScript(text)
		found := false
		for seed := 1; seed <= 300 && !found; seed++ {
			rapidly(seed, func(r *rapid.T) { found = history(t, r, addr, script, all) != "" })
			if found { // by the change, and not by a clock put forward
				rapidly(seed, func(r *rapid.T) { found = history(t, r, addr, askScript, all) == "" })
			}
		}
		require.True(t, found, "%s: not found in 300 histories", what)
	}
}

// rapidly draws one history of a seed.
func rapidly(seed int, fn func(r *rapid.T)) {
	rapid.Custom(func(r *rapid.T) bool { fn(r); return true }).Example(seed)
}

type event struct {
	what string
	wait time.Duration
	n    int
}

// What may happen; all has also what is not promised.
var (
	events = []string{"join", "join", "leave", "lose", "back", "idle", "sleep", "slower"}
	all    = append([]string{"forward"}, events...)
)

func drawEvents(r *rapid.T, of []string) []event {
	return rapid.SliceOfN(rapid.Custom(func(r *rapid.T) event {
		return event{
			what: rapid.SampledFrom(of).Draw(r, "what"),
			wait: time.Duration(rapid.IntRange(1, 900).Draw(r, "ms")) * time.Millisecond,
			n:    rapid.IntRange(1, 30).Draw(r, "n"),
		}
	}), 1, 6).Draw(r, "events")
}

// history plays one and tells what is wrong with it.
func history(t *testing.T, r *rapid.T, addr string, script *redis.Script, of []string) (bad string) {
	l := Limit{
		Rate:  rapid.OneOf(rapid.SampledFrom([]float64{200, 1019.0 / 60, 10, 3, 500}), rapid.Float64Range(0.5, 500)).Draw(r, "rate"),
		Burst: rapid.IntRange(1, 40).Draw(r, "burst"),
	}
	seed := rapid.Uint64().Draw(r, "seed")
	happens := drawEvents(r, of)
	return played(t, addr, script, l, seed, happens)
}

// played is a history of these events.
func played(t *testing.T, addr string, script *redis.Script, l Limit, seed uint64, happens []event) (bad string) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, addr, DefaultConfig())
		defer w.close()
		w.script = script
		m := &model{world: w, limit: l, seed: seed}
		m.join(8)
		for _, e := range happens {
			w.live(e.wait)
			m.play(e)
		}
		w.live(700 * time.Millisecond)
		w.close()
		bad = overfull(w.departures(), l.Rate, l.Burst)
	})
	return bad
}

type model struct {
	*world
	limit Limit
	seed  uint64
	nodes []*Shared
	still sync.Map // *Shared -> chan struct{}: those that stand still, until when
}

func (m *model) play(e event) {
	p := m.nodes[e.n%len(m.nodes)]
	switch e.what {
	case "join":
		m.join(e.n)
	case "leave":
		p.Close()
	case "lose":
		_, err := m.c.Del(m.ctx, redis.Tag("permits/x", "cap"))
		require.NoError(m.t, err)
	case "forward":
		m.put(time.Duration(e.n) * 150 * time.Millisecond)
	case "back":
		m.put(-time.Duration(e.n) * 100 * time.Millisecond)
	case "sleep":
		m.sleep(p, time.Duration(e.n)*50*time.Millisecond)
	case "slower":
		p.SetLimit(Limit{Rate: m.limit.Rate / 2, Burst: max(1, m.limit.Burst/2)})
	}
}

// sleep lets a node stand still while time goes on for all others: nothing departs
// there, no question leaves and no answer is seen. It wakes with what it had.
func (m *model) sleep(p *Shared, d time.Duration) {
	awake := make(chan struct{})
	m.still.Store(p, awake)
	p.mu.Lock()
	had := p.permits
	p.permits = nil
	p.mu.Unlock()
	m.live(d)
	p.mu.Lock()
	p.permits = had
	p.arm()
	p.mu.Unlock()
	m.still.Delete(p)
	close(awake)
}

// awake waits until p does not stand still.
func (m *model) awake(p *Shared) {
	if c, asleep := m.still.Load(p); asleep {
		<-c.(chan struct{})
	}
}

// join adds a node whose answers take up to 20 ms, with callers of which half
// give up and come back, so that permits are used at any time of their life.
func (m *model) join(callers int) {
	m.seed++
	rnd := rand.New(rand.NewPCG(m.seed, 0))
	p := m.cl.Permits("x", m.limit)
	p.mu.Lock()
	ask := p.exchange
	p.exchange = func(ctx context.Context, q question) (answer, error) {
		m.awake(p)
		pause(ctx, time.Duration(rnd.IntN(10000))*time.Microsecond)
		a, err := ask(ctx, q)
		pause(ctx, time.Duration(rnd.IntN(10000))*time.Microsecond)
		m.awake(p)
		return a, err
	}
	p.mu.Unlock()
	m.nodes = append(m.nodes, p)
	for i := range callers {
		if i%2 == 0 {
			m.wg.Go(func() { m.caller(m.ctx, p, 0) })
			continue
		}
		rnd := rand.New(rand.NewPCG(m.seed, uint64(i)))
		m.wg.Go(func() {
			for m.ctx.Err() == nil {
				ctx, cancel := context.WithTimeout(m.ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
				m.caller(ctx, p, time.Millisecond)
				cancel()
				pause(m.ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
				p.mu.Lock()
				over := p.closed
				p.mu.Unlock()
				if over {
					return
				}
			}
		})
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
