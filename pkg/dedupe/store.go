package dedupe

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// Verdict says what to do with a delivery. All but Duplicate are published.
type Verdict uint8

// The verdicts.
const (
	Fresh     Verdict = iota // the first of its identity: publish
	Duplicate                // another delivery of it is durable: only acknowledge
	Overdue                  // another delivery of it was begun and did not end in time: publish as well
	Unchecked                // Redis could not say: publish, and mark the letter as unchecked
)

// String gives the verdict's name as in metrics and headers.
func (v Verdict) String() string {
	switch v {
	case Fresh:
		return "fresh"
	case Duplicate:
		return "duplicate"
	case Overdue:
		return "overdue"
	}
	return "unchecked"
}

const (
	claimedPrefix = "claimed:"
	donePrefix    = "done:"
)

// errOpen stands for "not asked".
var errOpen = errors.New("redis is not asked after failures in a row")

// Store is the memory of identities. It is safe for concurrent use and has no
// goroutine while nothing is asked.
type Store struct {
	redis *redis.Client
	batch *batcher
	opt   Options
	gate  *breaker
	stats *stats
	// nonces is used only by who asks for nonces.
	nonces nonceMemory
}

// New makes a store over c. Call Options.Validate before; New does not fail.
func New(c *redis.Client, opt Options) *Store {
	opt = opt.withDefaults()
	s := &Store{redis: c, opt: opt, batch: &batcher{redis: c, budget: opt.Budget}, gate: &breaker{after: opt.BreakAfter, interval: opt.ProbeEvery, window: opt.Budget / 2}, nonces: nonceMemory{limit: maxNonces / 2}}
	s.stats = newStats(opt.Registerer, s.gate)
	return s
}

// Claim asks for an identity, a text that is equal exactly for deliveries of the
// same message (it may be long and is only kept as a hash). It returns within
// Options.Wait plus a few budgets; an earlier end of ctx cuts waiting short.
// The claim is never nil. After publishing call Done; if publishing failed for
// sure call Release. After Duplicate both do nothing.
func (s *Store) Claim(ctx context.Context, identityKey string) (Verdict, *Claim) {
	c := s.newClaim(identityKey)
	v := c.take(ctx)
	s.stats.verdict[v].Inc()
	return v, c
}

func (s *Store) newClaim(identityKey string) *Claim {
	return &Claim{s: s, key: redis.Key("claim", digest(identityKey)), mark: claimedPrefix + rand.Text()}
}

// ask runs one question to Redis within the budget and tells the breaker.
func (s *Store) ask(ctx context.Context, do func(context.Context) error) error {
	if !s.gate.allow() {
		return fault.Wrap(fault.Unavailable, "dedupe", errOpen)
	}
	limited, cancel := context.WithTimeout(ctx, s.opt.Budget)
	defer cancel()
	return s.heard(ctx, do(limited))
}

// set is ask for a setting, which shares its round trip with others. A second
// try, for what bears it, has what is left of the budget.
func (s *Store) set(ctx context.Context, what redis.Setting, twice bool) (redis.Setting, error) {
	if !s.gate.allow() {
		return what, fault.Wrap(fault.Unavailable, "dedupe", errOpen)
	}
	budget := s.batch.timer()
	defer s.batch.rest(budget)
	got, err := s.batch.ask(ctx, budget.C, what)
	if twice && again(ctx, err) {
		got, err = s.batch.ask(ctx, budget.C, what)
	}
	return got, s.heard(ctx, err)
}

// again reports whether a question may be asked once more: its connection broke,
// and neither its budget nor its caller is at an end.
func again(ctx context.Context, err error) bool {
	return err != nil && fault.KindOf(err) == fault.Unavailable && !errors.Is(err, errBudget) && ctx.Err() == nil
}

// heard tells the breaker how asking went.
func (s *Store) heard(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return err // the caller went away: that says nothing about Redis
	}
	if s.gate.note(err == nil, err != nil && isLate(err)) {
		s.logTurn(err)
	}
	return err
}

// isLate tells a server that is slow from one that refuses.
func isLate(err error) bool {
	var timeout net.Error
	return errors.Is(err, errBudget) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func (s *Store) logTurn(err error) {
	if err != nil {
		s.opt.Log.Warn("redis does not answer claims: deliveries pass unchecked until it does", zap.Error(err))
		return
	}
	s.opt.Log.Info("redis answers claims again")
}

// digest keeps personal data and lengths out of keys.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Claim is one delivery's hold on its identity.
type Claim struct {
	s   *Store
	key string
	// mark is claimed:<own token>.
	mark string
	// durable reports that another delivery is done already: nothing to mark.
	durable bool
	// own reports that the mark is, or after a lost reply may be, ours to remove.
	own bool
}

func (c *Claim) take(ctx context.Context) Verdict {
	prev, set, err := c.try(ctx)
	return c.settle(ctx, prev, set, err)
}

// settle makes a verdict of the first answer, and asks again while another
// delivery holds the identity.
func (c *Claim) settle(ctx context.Context, prev string, set bool, err error) Verdict {
	c.own = true
	deadline := time.Now().Add(c.s.opt.Wait)
	pause := 10 * time.Millisecond
	for {
		switch {
		case err != nil:
			return Unchecked
		case set, prev == c.mark:
			return Fresh
		case strings.HasPrefix(prev, donePrefix):
			c.durable, c.own = true, false
			return Duplicate
		case !strings.HasPrefix(prev, claimedPrefix):
			c.own = false
			return Unchecked // not a mark of ours: never a reason to drop a delivery
		}
		left := time.Until(deadline)
		if left <= 0 || !sleep(ctx, min(pause, left)) {
			c.own = false
			return Overdue
		}
		pause = min(2*pause, 100*time.Millisecond)
		prev, set, err = c.try(ctx)
	}
}

func (c *Claim) setting() redis.Setting {
	return redis.Setting{Key: c.key, Value: c.mark, TTL: c.s.opt.ClaimTTL, IfAbsent: true}
}

// try asks for the claim. A question that failed is asked once more while the
// budget lasts: the token makes that safe, and it turns the usual case of a
// connection that broke into an answer.
func (c *Claim) try(ctx context.Context) (prev string, set bool, err error) {
	got, err := c.s.set(ctx, c.setting(), true)
	return got.Prev, got.Set, err
}

// Done says that the delivery is durable: from now on its repeats are
// Duplicate. That is true whatever the mark says meanwhile (it vanished, or
// another delivery has claimed), so it is replaced without asking: one plain SET
// that shares a pipeline with claims. The other delivery's Release then finds a
// mark that is not its own. An error means only that repeats may be let through.
func (c *Claim) Done(ctx context.Context) error {
	if c.durable {
		return nil
	}
	_, err := c.s.set(ctx, c.doneMark(), false)
	c.s.stats.lost("done", err)
	return err
}

// DoneLater is Done for a caller who does not wait: then is called once, by the
// goroutine that talks to Redis or right here, and must not block. A mark that
// could not leave within the budget is left out, with an error.
func (c *Claim) DoneLater(then func(error)) {
	s := c.s
	if c.durable {
		then(nil)
		return
	}
	end := func(err error) {
		s.stats.lost("done", err)
		then(err)
	}
	if !s.gate.allow() {
		end(fault.Wrap(fault.Unavailable, "dedupe", errOpen))
		return
	}
	q := s.batch.question(c.doneMark())
	q.since = time.Now()
	q.onward = func(q *question) bool {
		err := q.first.Err
		s.batch.again(q)
		end(s.heard(context.Background(), err))
		return true
	}
	s.batch.put(q)
}

func (c *Claim) doneMark() redis.Setting {
	return redis.Setting{Key: c.key, Value: donePrefix + c.mark[len(claimedPrefix):], TTL: c.s.opt.DoneTTL}
}

// Release gives the identity back after the delivery could not be made durable,
// so that its repeat is worked. It removes only an own claim. An error means
// that the repeat waits up to Options.Wait and is then let through as Overdue.
func (c *Claim) Release(ctx context.Context) error {
	if !c.own {
		return nil
	}
	err := c.s.ask(ctx, func(ctx context.Context) error {
		_, err := c.s.redis.CompareAndDelete(ctx, c.key, c.mark)
		return err
	})
	c.s.stats.lost("release", err)
	return err
}

// sleep waits for d and reports false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
