package redis

import (
	"context"
	"time"
)

// The three compare scripts. KEYS[1]: the key. Result: 1 done, 0 the value was
// another one or the key was gone.
var (
	// ARGV[1]: the expected value.
	compareAndDelete = NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`)

	// ARGV[1]: the expected value; ARGV[2]: life in milliseconds.
	compareAndExpire = NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0`)

	// ARGV[1]: the expected value; ARGV[2]: the new one; ARGV[3]: life in
	// milliseconds. Finding the new value already there counts as done, so that
	// asking again after a lost reply gives the true answer.
	compareAndSet = NewScript(`
local now = redis.call('GET', KEYS[1])
if now == ARGV[1] or now == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
return 0`)
)

// CompareAndDelete removes key if it holds value, and reports whether it did.
func (c *Client) CompareAndDelete(ctx context.Context, key, value string) (bool, error) {
	v, err := compareAndDelete.Run(ctx, c, []string{key}, value)
	return toInt(v) == 1, err
}

// CompareAndExpire gives key a new life if it holds value, and reports whether it did.
func (c *Client) CompareAndExpire(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	v, err := compareAndExpire.Run(ctx, c, []string{key}, value, millis(ttl))
	return toInt(v) == 1, err
}

// CompareAndSet replaces before by after, with a new life, and reports whether
// key now holds after by this or an earlier call.
func (c *Client) CompareAndSet(ctx context.Context, key, before, after string, ttl time.Duration) (bool, error) {
	v, err := compareAndSet.Run(ctx, c, []string{key}, before, after, millis(ttl))
	return toInt(v) == 1, err
}
