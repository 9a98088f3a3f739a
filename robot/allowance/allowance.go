// Package allowance counts how often a follower caused what a rule does, exactly
// and over all robots: "5 per 10m" lets no sixth through in any ten minutes.
//
// Idea: one sorted set in Redis per rule and follower holds the callbacks that
// were let through, by the time at which they reached the door. A callback that
// is in the set was let through before, so that working it again decides the
// same; one that was refused is refused again, since those that were in its way
// stay in the set well beyond its period.
//
// On failure: an error means that nothing was decided; the rule says what then.
// After a lost reply the callback may have been counted, and finds itself when
// it asks again.
package allowance

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"tidegate/pkg/redis"
	"tidegate/robot/engine"
)

// spare is how long a callback stays in the set beyond two periods, at most:
// for callbacks that are worked again.
const spare = 10 * time.Minute

// take: KEYS[1] sorted set of callback ids by Unix milliseconds.
// ARGV[1] the callback's id, ARGV[2] its time, ARGV[3] how many are let through
// in ARGV[4] milliseconds, ARGV[5] milliseconds that they stay.
// Result: 1 let through, 0 refused.
//
// What came later counts as well: a callback that is worked out of order must
// not be one too many. Refused ones leave no trace, so the set stays small.
var take = redis.NewScript(`
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 1 end
local at, per, stay = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', at - stay))
local within = #redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', at - per), '+inf')
if within >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1`)

// Book counts. It holds no state and is safe for concurrent use.
type Book struct{ redis *redis.Client }

// New makes a book over a client.
func New(c *redis.Client) *Book { return &Book{redis: c} }

// key is {account.openid}:allowance:rule.
func key(account, openid, rule string) string {
	return redis.Tag(account+"."+openid, "allowance", rule)
}

// Take reports whether the follower may, and counts it if so. id and at are the
// callback's own.
func (b *Book) Take(ctx context.Context, account, openid string, l engine.Limit, id string, at time.Time) (bool, error) {
	stay := 2*l.Per + min(4*l.Per, spare)
	v, err := take.Run(ctx, b.redis, []string{key(account, openid, l.Rule)},
		id, strconv.FormatInt(at.UnixMilli(), 10), l.Times, l.Per.Milliseconds(), stay.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("count rule %s: %w", l.Rule, err)
	}
	n, _ := v.(int64)
	return n == 1, nil
}

// Erase forgets a follower under the given rules.
func (b *Book) Erase(ctx context.Context, account, openid string, rules ...string) error {
	for _, rule := range rules {
		if _, err := b.redis.Del(ctx, key(account, openid, rule)); err != nil {
			return fmt.Errorf("erase counts: %w", err)
		}
	}
	return nil
}
