package redis

import (
	"context"
	"strconv"
	"time"

	"tidegate/pkg/fault"
)

// Get reads a string. found is false if there is no such key.
func (c *Client) Get(ctx context.Context, key string) (value string, found bool, err error) {
	v, err := c.read(ctx, "get", c.key(key))
	if isNil(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, c.fail("get", err)
	}
	s, _ := v.(string)
	return s, true, nil
}

// Set writes a string that lives for ttl; a zero ttl means for ever.
func (c *Client) Set(ctx context.Context, key, value string, ttl time.Duration) error {
	args := []any{"set", c.key(key), value}
	if ttl > 0 {
		args = append(args, "px", millis(ttl))
	}
	_, err := c.write(ctx, args...)
	return c.fail("set", err)
}

// SetNXGet writes value only if key is absent, in one round trip, and otherwise
// returns what is there. It is the claim: sent at most once, and because the
// value is the caller's own token, a caller that asks again after a lost reply
// finds its token in prev and knows that it had won. Needs Redis 7.0.
func (c *Client) SetNXGet(ctx context.Context, key, value string, ttl time.Duration) (prev string, set bool, err error) {
	if ttl <= 0 {
		return "", false, fault.New(fault.Internal, "redis claim", "ttl %v: a claim must end by itself", ttl)
	}
	v, err := c.write(ctx, "set", c.key(key), value, "px", millis(ttl), "nx", "get")
	if isNil(err) {
		return "", true, nil
	}
	if err != nil {
		return "", false, c.fail("claim", err)
	}
	s, _ := v.(string)
	return s, false, nil
}

// Del removes a key and reports whether it was there.
func (c *Client) Del(ctx context.Context, key string) (bool, error) {
	v, err := c.write(ctx, "del", c.key(key))
	return toInt(v) > 0, c.fail("del", err)
}

// Expire gives an existing key a new life. It reports false if there is no such key.
func (c *Client) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	v, err := c.write(ctx, "pexpire", c.key(key), millis(ttl))
	return toInt(v) > 0, c.fail("expire", err)
}

// TTL is the remaining life of a key: found is false if there is none, and a
// negative duration means "for ever".
func (c *Client) TTL(ctx context.Context, key string) (left time.Duration, found bool, err error) {
	v, err := c.read(ctx, "pttl", c.key(key))
	if err != nil {
		return 0, false, c.fail("pttl", err)
	}
	switch n := toInt(v); n {
	case -2:
		return 0, false, nil
	case -1:
		return -1, true, nil
	default:
		return time.Duration(n) * time.Millisecond, true, nil
	}
}

// Incr adds one and returns the new value. After a lost reply the caller cannot
// know whether it counted: use it where a gap or a double does no harm.
func (c *Client) Incr(ctx context.Context, key string) (int64, error) {
	v, err := c.write(ctx, "incr", c.key(key))
	return toInt(v), c.fail("incr", err)
}

// millis rounds up, so that a positive life never becomes zero.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// toInt reads the integer replies of RESP2, RESP3 and of scripts alike.
func toInt(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case string:
		i, _ := strconv.ParseInt(n, 10, 64)
		return i
	}
	return 0
}
