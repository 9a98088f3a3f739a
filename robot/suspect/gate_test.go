package suspect

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in tells, in a bubble, whether a wait for the gate is over.
func in(ctx context.Context, enter func(context.Context, *pass) error) (p *pass, through *atomic.Bool) {
	p, through = &pass{}, &atomic.Bool{}
	go func() {
		if enter(ctx, p) == nil {
			through.Store(true)
		}
	}()
	synctest.Wait()
	return p, through
}

// A suspect waits for whoever is in hand, keeps others out while it waits and
// while it is in hand, and lets them in after that.
func TestASuspectIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(5 * time.Second)
		a, b := &pass{}, &pass{}
		require.True(t, g.try(a))
		require.True(t, g.try(b))
		s, alone := in(t.Context(), g.enterAlone)
		require.False(t, g.try(&pass{}), "nobody new while a suspect waits")
		c, company := in(t.Context(), g.enter)
		a.leave()
		synctest.Wait()
		require.False(t, alone.Load(), "one is still in hand")
		b.leave()
		synctest.Wait()
		require.True(t, alone.Load())
		require.False(t, company.Load())
		s.leave()
		s.leave() // harmless
		synctest.Wait()
		require.True(t, company.Load())
		c.leave()
		require.True(t, g.try(&pass{}))
	})
}

// Suspects that wait together go one after the other, for a turn; then company
// has one as long.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(5 * time.Second)
		one, first := in(t.Context(), g.enterAlone)
		two, second := in(t.Context(), g.enterAlone)
		three, third := in(t.Context(), g.enterAlone)
		c, company := in(t.Context(), g.enter)
		require.True(t, first.Load())
		require.False(t, second.Load())
		<-time.After(3 * time.Second)
		one.leave()
		synctest.Wait()
		next, last, waits := two, three, third
		if third.Load() { // which of them is first is not promised
			next, last, waits = three, two, second
		}
		require.NotEqual(t, second.Load(), third.Load())
		require.False(t, company.Load(), "the turn is not over")
		<-time.After(2 * time.Second)
		next.leave()
		synctest.Wait()
		require.True(t, company.Load(), "the turn is over")
		require.False(t, waits.Load())
		c.leave()
		<-time.After(4999 * time.Millisecond)
		synctest.Wait()
		require.False(t, waits.Load(), "company's turn is as long")
		require.True(t, g.try(c))
		c.leave()
		<-time.After(time.Millisecond)
		synctest.Wait()
		require.True(t, waits.Load())
		last.leave()
	})
}

// One that takes long goes on in company, and the next suspect waits for it.
func TestOneThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(5 * time.Second)
		s, _ := in(t.Context(), g.enterAlone)
		_, company := in(t.Context(), g.enter)
		<-time.After(5*time.Second + time.Millisecond)
		synctest.Wait()
		require.True(t, company.Load())
		n, next := in(t.Context(), g.enterAlone)
		<-time.After(time.Minute)
		synctest.Wait()
		require.False(t, next.Load(), "two are in hand")
		require.Equal(t, 2, g.company)
		s.leave()
		require.Equal(t, 1, g.company)
		n.leave() // was never let in
	})
}

// A suspect that gives up waiting keeps nobody out.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(5 * time.Second)
		a := &pass{}
		require.True(t, g.try(a))
		ctx, cancel := context.WithCancel(t.Context())
		_, alone := in(ctx, g.enterAlone)
		_, company := in(t.Context(), g.enter)
		require.False(t, company.Load())
		cancel()
		synctest.Wait()
		require.True(t, company.Load())
		require.False(t, alone.Load())
		require.Zero(t, g.waiting)
		stuck, stop := context.WithCancel(t.Context())
		s, _ := in(stuck, g.enterAlone)
		_, late := in(stuck, g.enter)
		stop()
		synctest.Wait()
		require.False(t, late.Load())
		s.leave()
	})
}
