package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// What a caller may test for.
var (
	ErrHeld = errors.New("somebody else holds the lease")
	ErrLost = errors.New("the lease is no longer ours")
)

// take: KEYS[1] the lease, KEYS[2] the last fence; ARGV[1] the token, ARGV[2]
// the life in milliseconds. Result: the fence as text, or false if held.
// A repeat with the same token, after a lost reply, gives the same fence.
// The fence is at least the server's clock in microseconds, so that it also
// rises after the data were lost; it stays below 2^53 until the year 2255.
var takeLease = redis.NewScript(`
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return redis.call('GET', KEYS[2])
end
if holder then return false end
local time = redis.call('TIME')
local fence = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if fence <= last then fence = last + 1 end
local text = string.format('%.0f', fence)
redis.call('SET', KEYS[2], text)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return text`)

// Lease is one holder's right. It is safe for concurrent use by reading; Renew
// and Release belong to one goroutine. Run does all of that.
type Lease struct {
	c     *redis.Client
	key   string
	name  string
	token string
	ttl   time.Duration
	fence int64
	until deadline
}

func leaseKeys(name string) (holder, fence string) {
	return redis.Tag(name, "lease"), redis.Tag(name, "fence")
}

// Acquire takes the lease called name for ttl, once, without waiting. If another
// holder has it the error is ErrHeld, of kind fault.Conflict; if Redis cannot
// answer it is fault.Unavailable.
func Acquire(ctx context.Context, c *redis.Client, name string, ttl time.Duration) (*Lease, error) {
	if name == "" || ttl < 10*time.Millisecond {
		return nil, fault.New(fault.Internal, "acquire lease", "name %q, life %v: a lease needs a name and at least 10ms", name, ttl)
	}
	holder, fence := leaseKeys(name)
	l := &Lease{c: c, key: holder, name: name, token: rand.Text(), ttl: ttl}
	sent := time.Now()
	v, err := takeLease.Run(ctx, c, []string{holder, fence}, l.token, ttl.Milliseconds())
	if err != nil {
		sent = time.Now() // the reply may have been lost: the token makes asking again safe
		v, err = takeLease.Run(ctx, c, []string{holder, fence}, l.token, ttl.Milliseconds())
	}
	if err != nil {
		return nil, fmt.Errorf("acquire lease %s: %w", name, err)
	}
	text, _ := v.(string)
	if text == "" {
		return nil, fault.Wrap(fault.Conflict, "acquire lease "+name, ErrHeld)
	}
	if _, err := fmt.Sscan(text, &l.fence); err != nil {
		return nil, fault.New(fault.Internal, "acquire lease "+name, "fence %q is not a number", text)
	}
	l.until.set(sent, ttl)
	return l, nil
}

// Fence is larger than that of every holder before.
func (l *Lease) Fence() int64 { return l.fence }

// Until is when the holder must stop, a tenth of the life before Redis forgets.
func (l *Lease) Until() time.Time { return l.until.get() }

// Valid reports whether the lease is held now. Ask right before each effect; a
// pause between asking and the effect is what the fence is for.
func (l *Lease) Valid() bool { return !l.until.passed() }

// Renew prolongs the lease by its life from now. ErrLost (kind fault.Conflict)
// means that it ended and somebody else may act; any other error means that
// Redis did not answer and the lease lasts until Until.
func (l *Lease) Renew(ctx context.Context) error {
	sent := time.Now()
	ok, err := l.c.CompareAndExpire(ctx, l.key, l.token, l.ttl)
	if err != nil {
		return fmt.Errorf("renew lease %s: %w", l.name, err)
	}
	if !ok {
		l.until.end()
		return fault.Wrap(fault.Conflict, "renew lease "+l.name, ErrLost)
	}
	l.until.set(sent, l.ttl)
	return nil
}

// Release gives the lease up, so that the next holder need not wait for its end.
// It may be called after the lease was lost; another holder's lease is left alone.
func (l *Lease) Release(ctx context.Context) error {
	l.until.end()
	_, err := l.c.CompareAndDelete(ctx, l.key, l.token)
	if err != nil {
		return fmt.Errorf("release lease %s: %w", l.name, err)
	}
	return nil
}

// Current tells the fence given last, and whether somebody holds the lease now.
// What was never taken has fence 0.
func Current(ctx context.Context, c *redis.Client, name string) (fence int64, held bool, err error) {
	holder, last := leaseKeys(name)
	text, found, err := c.Get(ctx, last)
	if err != nil {
		return 0, false, fmt.Errorf("look at lease %s: %w", name, err)
	}
	if found {
		if _, err := fmt.Sscan(text, &fence); err != nil {
			return 0, false, fault.New(fault.Internal, "look at lease "+name, "fence %q is not a number", text)
		}
	}
	_, held, err = c.Get(ctx, holder)
	if err != nil {
		return 0, false, fmt.Errorf("look at lease %s: %w", name, err)
	}
	return fence, held, nil
}
