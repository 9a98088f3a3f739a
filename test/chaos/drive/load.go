package drive

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Load is an open loop: acts come when the plan says so, whatever the answers
// do.
type Load struct {
	Rate  float64 // acts per second
	Count int     // ends after so many; 0 means until the context ends
	// Even spaces the acts evenly; otherwise they come as those of many
	// independent people do (a Poisson process).
	Even bool
	// Act makes act i, counted from 0.
	Act func(i int) Act
	// Dice draws the arrivals; nil takes any.
	Dice *rand.Rand
}

// Sum is what became of the acts of a load.
type Sum struct {
	Offered, Acked, GivenUp, Skipped int64
}

// Open runs the load and waits for the last answer. The end of ctx ends the
// arrivals; what is under way is finished.
func (d *Driver) Open(ctx context.Context, l Load) Sum {
	var acked, lost atomic.Int64
	var s Sum
	var wg sync.WaitGroup
	begin, at := time.Now(), time.Duration(0)
	t := time.NewTimer(0)
	defer t.Stop()
	for i := 0; l.Count == 0 || i < l.Count; i++ {
		due := begin.Add(at)
		at += l.gap()
		if wait := time.Until(due); wait > 0 {
			t.Reset(wait)
			select {
			case <-t.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		select {
		case d.flight <- struct{}{}:
		default:
			s.Skipped++
			continue
		}
		s.Offered++
		a := l.Act(i)
		wg.Go(func() {
			defer func() { <-d.flight }()
			if d.Send(context.WithoutCancel(ctx), a, due) {
				acked.Add(1)
			} else {
				lost.Add(1)
			}
		})
	}
	wg.Wait()
	s.Acked, s.GivenUp = acked.Load(), lost.Load()
	return s
}

func (l Load) gap() time.Duration {
	x := 1.0
	if !l.Even {
		if l.Dice != nil {
			x = l.Dice.ExpFloat64()
		} else {
			x = rand.ExpFloat64()
		}
	}
	return time.Duration(x / l.Rate * float64(time.Second))
}

// Users is a closed loop: each user sends the next act only when the last one
// was acked, and acts until each of his was.
type Users struct {
	Count, Each int
	// Until keeps users who are through going on until it is closed; nil does not.
	Until <-chan struct{}
	// Pause lies between a user's acts; zero is as fast as the acks come.
	Pause time.Duration
	// Act makes a user's act: user, his number of acks so far, and a number that
	// no other act of the load has. A callback that WeChat gave up is not repeated:
	// the user does something new.
	Act func(user, acked, n int) Act
}

// Closed runs the users until all are through or ctx ends. It gives the number
// of acks.
func (d *Driver) Closed(ctx context.Context, u Users) int64 {
	var wg sync.WaitGroup
	var n, acked atomic.Int64
	for user := range u.Count {
		wg.Go(func() {
			for done := 0; u.goOn(done) && ctx.Err() == nil; {
				if d.Send(context.WithoutCancel(ctx), u.Act(user, done, int(n.Add(1)-1)), time.Time{}) {
					done++
					acked.Add(1)
					rest(ctx, u.Pause)
				} else {
					rest(ctx, 50*time.Millisecond) // nobody types faster
				}
			}
		})
	}
	wg.Wait()
	return acked.Load()
}

func (u Users) goOn(done int) bool {
	if done < u.Each {
		return true
	}
	if u.Until == nil {
		return false
	}
	select {
	case <-u.Until:
		return false
	default:
		return true
	}
}

func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
