package lease

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// NumbersOptions says which set of numbers to lease from. Zero fields take the
// defaults named.
type NumbersOptions struct {
	Name  string        // the set's name; default "worker"
	Count int           // numbers are 0 to Count-1; default and maximum 1024
	TTL   time.Duration // life of a lease; default 24 h
	// RenewEvery is how often the lease is renewed while numbers are asked for,
	// and how long an answer of Number may be used; default 10 s.
	RenewEvery time.Duration
	// MaxWait is how long Number waits for the own clock to pass that of the
	// number's last holder, before it gives an error; default 1 s.
	MaxWait time.Duration
	Now     func() time.Time // the clock that goes into ids; default time.Now
}

const maxNumbers = 1024

func (o NumbersOptions) withDefaults() NumbersOptions {
	if o.Name == "" {
		o.Name = "worker"
	}
	if o.Count <= 0 || o.Count > maxNumbers {
		o.Count = maxNumbers
	}
	if o.TTL <= 0 {
		o.TTL = 24 * time.Hour
	}
	if o.RenewEvery <= 0 {
		o.RenewEvery = min(10*time.Second, o.TTL/10)
	}
	if o.MaxWait <= 0 {
		o.MaxWait = time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Numbers leases one number for this process, takes the one that was idle
// longest, and renews it as it is asked for. It owns no goroutine.
//
// A number's last use is kept with it: a new holder waits until its own clock
// has passed it, so that time-based ids made with the number never repeat, even
// if the clocks of two nodes differ.
type Numbers struct {
	c     *redis.Client
	opt   NumbersOptions
	token string

	mu        sync.Mutex
	held      bool
	number    int
	end       time.Time // when the lease ends for us
	renewed   time.Time // when renewal was last tried
	notBefore time.Time // the last holder's last use
}

// NewNumbers prepares the lease. Nothing is sent.
func NewNumbers(c *redis.Client, opt NumbersOptions) *Numbers {
	return &Numbers{c: c, opt: opt.withDefaults(), token: crand.Text()}
}

// Number gives the leased number, leasing one if none is held, and when the
// answer must be asked for again (wall clock). Out of contact with Redis the
// number is good until its lease ends; then, and when all numbers are taken, the
// error is of kind fault.Unavailable.
func (n *Numbers) Number(ctx context.Context) (number int, until time.Time, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.opt.Now()
	if n.held && over(n.end, now) {
		n.held = false
	}
	if n.held && now.Sub(n.renewed) >= n.opt.RenewEvery {
		n.renew(ctx, now)
	}
	if !n.held {
		if err := n.take(ctx, now); err != nil {
			return 0, time.Time{}, fmt.Errorf("lease a %s number: %w", n.opt.Name, err)
		}
	}
	if err := n.passLastUse(ctx); err != nil {
		return 0, time.Time{}, fmt.Errorf("use %s number %d: %w", n.opt.Name, n.number, err)
	}
	until = n.opt.Now().Add(n.opt.RenewEvery)
	if n.end.Before(until) {
		until = n.end
	}
	return n.number, until.Round(0), nil
}

// take leases the number that was idle longest.
func (n *Numbers) take(ctx context.Context, now time.Time) error {
	run := func() (any, error) {
		return takeNumber.Run(ctx, n.c, n.keys(), n.token, n.opt.TTL.Milliseconds(), n.opt.Count,
			rand.IntN(n.opt.Count), now.Add(n.opt.TTL).UnixMilli())
	}
	v, err := run()
	if err != nil && ctx.Err() == nil {
		v, err = run() // the token makes asking again safe
	}
	if err != nil {
		return err
	}
	reply, _ := v.([]any)
	if len(reply) != 2 {
		return fault.New(fault.Unavailable, "take", "all %d are taken; stop processes that are not needed, or wait until leases of dead ones end", n.opt.Count)
	}
	number, _ := reply[0].(int64)
	var last int64
	if _, err := fmt.Sscan(fmt.Sprint(reply[1]), &last); err != nil {
		return fault.New(fault.Internal, "take", "last use %v is not a number", reply[1])
	}
	n.held, n.number, n.renewed = true, int(number), now
	n.end = now.Add(n.life())
	n.notBefore = time.UnixMilli(last)
	return nil
}

// life is the lease as the holder counts it: a thousandth less than Redis does,
// for clocks of different speed.
func (n *Numbers) life() time.Duration { return n.opt.TTL - n.opt.TTL/1000 }

// renew prolongs the lease. If the number now belongs to somebody else it is
// given up at once; if Redis does not answer it lasts until its end.
func (n *Numbers) renew(ctx context.Context, now time.Time) {
	n.renewed = now
	v, err := renewNumber.Run(ctx, n.c, n.keys(), n.number, n.token, n.opt.TTL.Milliseconds(), now.Add(n.opt.TTL).UnixMilli())
	if err != nil {
		return
	}
	if ours, _ := v.(int64); ours != 1 {
		n.held = false
		return
	}
	n.end = now.Add(n.life())
}

// passLastUse waits until the own clock is past the last holder's last use.
func (n *Numbers) passLastUse(ctx context.Context) error {
	behind := n.notBefore.Sub(n.opt.Now().Round(0))
	if behind < 0 {
		return nil
	}
	if behind > n.opt.MaxWait {
		return fault.New(fault.Unavailable, "wait for the clock", "this clock is %v behind the last holder's; check time synchronisation", behind).WithRetryAfter(behind)
	}
	t := time.NewTimer(behind + time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, "wait for the clock", ctx.Err())
	case <-t.C:
		return nil
	}
}

// Release gives the number back with the time of its last use. Call it when no
// id will be made any more. Without it the number stays taken until its lease ends.
func (n *Numbers) Release(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.held {
		return nil
	}
	n.held = false
	_, err := releaseNumber.Run(ctx, n.c, n.keys(), n.number, n.token, n.opt.Now().UnixMilli())
	if err != nil {
		return fmt.Errorf("release %s number %d: %w", n.opt.Name, n.number, err)
	}
	return nil
}

func (n *Numbers) keys() []string {
	return []string{redis.Tag(n.opt.Name, "ends"), redis.Tag(n.opt.Name, "owners"), redis.Tag(n.opt.Name, "last")}
}

// Validate reports settings that cannot work.
func (o NumbersOptions) Validate() error {
	var errs []error
	if o.Count < 0 || o.Count > maxNumbers {
		errs = append(errs, fmt.Errorf("count: %d is outside 1 to %d", o.Count, maxNumbers))
	}
	d := o.withDefaults()
	if d.TTL < 10*d.RenewEvery {
		errs = append(errs, fmt.Errorf("ttl: %v must be at least ten times renew_every (%v)", d.TTL, d.RenewEvery))
	}
	return errors.Join(errs...)
}
