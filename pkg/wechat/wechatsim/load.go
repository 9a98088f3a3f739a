package wechatsim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Loops of a load.
const (
	// LoopClosed lets a user act again only after the last callback was acked
	// or given up, so the order that a user sees is well defined.
	LoopClosed = "closed"
	// LoopOpen offers at the rate whatever the answers do.
	LoopOpen = "open"
)

// Mix is the weight of each kind of act; all zero is text only.
type Mix struct {
	Text      int `json:"text"`
	Menu      int `json:"menu"`
	Scan      int `json:"scan"`
	Subscribe int `json:"subscribe"` // a new user each time
}

// LoadSpec describes bounded load. Every act carries a mark and wants a reply.
type LoadSpec struct {
	Account string
	// Rate is acts per second over all users; 0, in a closed loop only, is as
	// fast as the users get their acks.
	Rate float64
	// Count and For end the load, whichever comes first; one must be set.
	Count int
	For   time.Duration
	Loop  string // closed (default) or open
	// Users is how many followers take part; 0 is all.
	Users int
	Mix   Mix
	// RepeatShare is how often a user presses the same menu again RepeatAfter
	// the ack (default 1.1 s, so that it falls into another second).
	RepeatShare float64
	RepeatAfter time.Duration
	// ParallelShare delivers twice at the same time, LoseAckShare repeats a
	// callback although its ack came.
	ParallelShare, LoseAckShare float64
	// Text, MenuKey and Scene go before the marks.
	Text, MenuKey, Scene string
	// Wants is the number of replies per act, by default 1; -1 wants none.
	Wants int
}

// LoadReport counts what a load did. Skipped acts were not offered because
// Config.MaxInFlight deliveries were under way.
type LoadReport struct {
	Offered     int64         `json:"offered"`
	Skipped     int64         `json:"skipped"`
	Acked       int64         `json:"acked"`
	Refused     int64         `json:"refused"`
	UserRepeats int64         `json:"user_repeats"`
	Elapsed     time.Duration `json:"elapsed_ns"`
}

func (l LoadSpec) validate() error {
	for _, share := range []float64{l.RepeatShare, l.ParallelShare, l.LoseAckShare} {
		if share < 0 || share > 1 {
			return errors.New("load: shares must be 0 to 1")
		}
	}
	m := l.Mix
	switch {
	case l.Count < 0 || l.For < 0 || l.Rate < 0 || l.Users < 0 || l.RepeatAfter < 0 || l.Wants < -1:
		return errors.New("load: numbers must not be negative")
	case l.Count == 0 && l.For == 0:
		return errors.New("load: set count or for, so that it ends")
	case l.Loop != "" && l.Loop != LoopClosed && l.Loop != LoopOpen:
		return fmt.Errorf("load: loop %q: use closed or open", l.Loop)
	case l.Loop == LoopOpen && l.Rate == 0:
		return errors.New("load: an open loop needs a rate")
	case m.Text < 0 || m.Menu < 0 || m.Scan < 0 || m.Subscribe < 0:
		return errors.New("load: weights must not be negative")
	}
	return nil
}

func (l LoadSpec) withDefaults() LoadSpec {
	fill(&l.Loop, LoopClosed)
	fill(&l.RepeatAfter, 1100*time.Millisecond)
	fill(&l.Text, "你好")
	fill(&l.MenuKey, "MENU_SIM")
	fill(&l.Scene, "sim")
	fill(&l.Wants, 1)
	if l.Mix == (Mix{}) {
		l.Mix.Text = 1
	}
	l.Wants = max(l.Wants, 0)
	return l
}

// loadRun is one load while it runs.
type loadRun struct {
	sim  *Sim
	acct *account
	spec LoadSpec
	dice *rand.Rand
	free chan string // users that may act, in a closed loop
	wg   sync.WaitGroup

	offered, skipped, acked, refused, repeats atomic.Int64
}

// Load offers acts until the spec or ctx ends it, waits until the last callback
// is settled, and reports.
func (s *Sim) Load(ctx context.Context, spec LoadSpec) (LoadReport, error) {
	a, err := s.find(spec.Account)
	if err == nil {
		err = spec.validate()
	}
	if err != nil {
		return LoadReport{}, err
	}
	if target, _ := a.target(); target == "" {
		return LoadReport{}, fmt.Errorf("account %s has no callback_url: set one first", a.cfg.AppID)
	}
	users := a.some(spec.Users)
	if len(users) == 0 {
		return LoadReport{}, fmt.Errorf("account %s has no followers: add some first", a.cfg.AppID)
	}
	l := &loadRun{
		sim: s, acct: a, spec: spec.withDefaults(), free: make(chan string, len(users)),
		dice: rand.New(rand.NewPCG(uint64(s.cfg.Seed), s.callbacks.Load())),
	}
	for _, u := range users {
		l.free <- u
	}
	begun := time.Now()
	err = l.offer(ctx, begun, users)
	l.wg.Wait()
	return LoadReport{
		Offered: l.offered.Load(), Skipped: l.skipped.Load(), Acked: l.acked.Load(),
		Refused: l.refused.Load(), UserRepeats: l.repeats.Load(), Elapsed: time.Since(begun),
	}, err
}

// offer paces the acts. Behind the schedule it does not sleep, so the rate holds
// on average; in an open loop nothing but the in-flight bound holds it back.
func (l *loadRun) offer(ctx context.Context, begun time.Time, users []string) error {
	if l.spec.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, begun.Add(l.spec.For), errLoadOver)
		defer cancel()
	}
	for i := 0; l.spec.Count == 0 || i < l.spec.Count; i++ {
		if l.spec.Rate > 0 {
			due := time.Duration(float64(i) / l.spec.Rate * float64(time.Second))
			if l.spec.For > 0 && due >= l.spec.For {
				return nil
			}
			if pause(ctx, time.Until(begun.Add(due))) != nil {
				return l.over(ctx)
			}
		}
		if l.sim.journal.judge.Full() {
			return errFull
		}
		user, took := users[i%len(users)], true
		if l.spec.Loop == LoopClosed {
			user, took = l.nextFree(ctx)
		}
		if !took {
			return l.over(ctx)
		}
		if err := l.start(ctx, user); err != nil {
			return err
		}
	}
	return nil
}

var errLoadOver = errors.New("the load's time is over")

// over tells a load that ended by its own time from one that was ended.
func (l *loadRun) over(ctx context.Context) error {
	if l.sim.life.Err() != nil {
		return errClosed
	}
	if errors.Is(context.Cause(ctx), errLoadOver) {
		return nil
	}
	return ctx.Err()
}

func (l *loadRun) nextFree(ctx context.Context) (string, bool) {
	select {
	case u := <-l.free:
		return u, true
	case <-ctx.Done():
	case <-l.sim.life.Done():
	}
	return "", false
}

// start begins one act, if a delivery slot is free (open loop) or becomes free.
func (l *loadRun) start(ctx context.Context, user string) error {
	if l.spec.Loop == LoopOpen {
		select {
		case l.sim.slots <- struct{}{}:
		default:
			l.skipped.Add(1)
			return nil
		}
	} else {
		select {
		case l.sim.slots <- struct{}{}:
		case <-ctx.Done():
			return l.over(ctx)
		}
	}
	p := l.plan(user)
	l.wg.Add(1)
	begun := l.sim.goWork(func() {
		defer l.wg.Done()
		defer func() { <-l.sim.slots }()
		l.act(p)
		if l.spec.Loop == LoopClosed {
			l.free <- user
		}
	})
	if !begun {
		l.wg.Done()
		<-l.sim.slots
		return errClosed
	}
	return nil
}
