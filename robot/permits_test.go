package robot

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

// maker keeps what it made, by name.
type maker map[string]*made

type made struct {
	ratelimit.Permits
	limit  ratelimit.Limit
	closed int
	paused bool
}

func (m *made) Close() { m.closed++; m.Permits.Close() }

func (m *made) Paused() bool { return m.paused }

func (m maker) make(name string, l ratelimit.Limit) ratelimit.Permits {
	m[name] = &made{Permits: ratelimit.New(l), limit: l}
	return m[name]
}

func TestPermitsAreGivenUpWithTheirAccount(t *testing.T) {
	all := maker{}
	d := Deps{Permits: all.make}
	l := ratelimit.Limit{Rate: 5, Burst: 2, Concurrency: 3}
	m := &member{limiter: d.permits("robot.card", l)}
	require.Equal(t, l, all["robot.card"].limit)
	r := &Robot{}
	r.ended(m) // a stop of the process; others live on
	require.Zero(t, all["robot.card"].closed)
	m.cancel = func() {}
	m.retire()
	require.Zero(t, all["robot.card"].closed, "callbacks may be in hand")
	r.ended(m)
	require.Equal(t, 1, all["robot.card"].closed)

	idle := &member{limiter: d.permits("robot.shop", l)}
	idle.retire()
	require.Equal(t, 1, all["robot.shop"].closed, "it never ran")
	require.IsType(t, &ratelimit.Limiter{}, (&Deps{}).permits("x", l))
}

// Accounts that cannot all be taken leave nothing behind: no permits of those that
// could be, and none of the one that could not; those that were there stay.
func TestAccountsThatAreNotTakenGiveTheirPermitsUp(t *testing.T) {
	all := maker{}
	var r *Robot
	fine, brokers := DefaultConfig().SessionTimeout, kafka.DefaultConfig()
	brokers.Brokers = []string{"127.0.0.1:1"}
	r, err := New(DefaultConfig(), []Account{{Name: "old"}}, Deps{Kafka: brokers, Rules: noRules{}, Permits: func(name string, l ratelimit.Limit) ratelimit.Permits {
		if name == "robot.bad" {
			r.cfg.SessionTimeout = 1 // no consumer group takes it
		}
		return all.make(name, l)
	}})
	require.NoError(t, err)
	err = r.SetAccounts([]Account{{Name: "old"}, {Name: "good"}, {Name: "bad"}})
	require.ErrorContains(t, err, "account bad")
	require.Equal(t, 1, all["robot.good"].closed)
	require.Equal(t, 1, all["robot.bad"].closed)
	require.Zero(t, all["robot.old"].closed)

	r.cfg.SessionTimeout = fine
	require.NoError(t, r.SetAccounts([]Account{{Name: "old"}, {Name: "good"}}))
	require.Zero(t, all["robot.good"].closed, "a second time it has new ones")
}

// noRules know no answer.
type noRules struct{}

func (noRules) Terms(*wire.Callback) engine.Terms              { return engine.Terms{} }
func (noRules) Decide(*wire.Callback) (engine.Decision, error) { return engine.Decision{}, nil }
func (noRules) Fallback() string                               { return "" }
func (noRules) Backends() []string                             { return nil }

// Permits that rest say nothing about overload: nobody is refused for it, and the
// measurement begins when they come again.
func TestARestOfThePermitsIsNoOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := maker{}
		all.make("robot.card", ratelimit.Limit{Concurrency: 1})
		p := all["robot.card"]
		p.paused = true
		release, err := p.Acquire(t.Context(), 0) // none is left
		require.NoError(t, err)
		gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "waiting"}, []string{"of", "level"})
		l := newLine("account", "account card", both{ratelimit.New(ratelimit.Limit{}), p}, patience{engine.Event: 5 * time.Second}, gauges)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wait := func() {
			wg.Go(func() {
				_, err := l.Acquire(withTurn(ctx, turn{level: engine.Event}), 0)
				assert.Error(t, err)
			})
			<-time.After(100 * time.Millisecond)
		}
		wg.Go(func() { _, _ = l.Acquire(withTurn(ctx, turn{level: engine.Event}), 0) }) // gets the only one
		synctest.Wait()
		for range 40 {
			wait()
			require.Nil(t, l.refuses(engine.Event))
		}
		p.paused = false
		release()
		for range 9 {
			wait()
			require.Nil(t, l.refuses(engine.Event), "a second has to be measured first")
		}
		<-time.After(700 * time.Millisecond)
		require.NotNil(t, l.refuses(engine.Event))
		cancel()
		wg.Wait()
	})
}
