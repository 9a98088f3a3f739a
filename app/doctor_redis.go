package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/redis"
)

// clockSkew is how far two clocks of a deployment may differ: beyond it a
// worker number cannot be handed on and windows are counted wrongly.
const clockSkew = 2 * time.Second

// checkRedis asks the server what it is, compares clocks and makes one claim,
// since a server that answers may still refuse to write.
func (d *doctor) checkRedis(ctx context.Context) []finding {
	name := fmt.Sprintf("redis %s", strings.Join(d.cfg.Redis.Addrs, ","))
	c, err := redis.Open(d.cfg.Redis, zap.NewNop())
	if err != nil {
		return []finding{fail("correct the redis section", "%s: %v", name, err)}
	}
	defer c.Close()
	if err := c.Ping(ctx); err != nil {
		return []finding{redisAway(name, d.cfg.Redis, err)}
	}
	info, err := c.Info(ctx)
	if err != nil {
		return []finding{redisAway(name, d.cfg.Redis, err)}
	}
	out := d.judgeRedis(name, info)
	out = append(out, d.checkClock(ctx, name, c)...)
	return append(out, checkClaim(ctx, name, c))
}

// redisAway explains why a server does not serve. Refusals carry what to do
// already.
func redisAway(name string, c redis.Config, err error) finding {
	switch {
	case fault.KindOf(err) == fault.Denied:
		return fail("the server is there, the login is not right", "%s: %v", name, err)
	case c.TLS.Enabled:
		return fail("start it, correct redis.addrs, or check that this port speaks TLS and its certificate is signed by redis.tls.ca_file", "%s does not answer: %v", name, err)
	case c.Mode == redis.Sentinel:
		return fail(fmt.Sprintf("check that the sentinels in redis.addrs run and know the master %q", c.Master), "%s does not answer: %v", name, err)
	}
	return fail("start it, or correct redis.addrs (and redis.tls if the server speaks TLS)", "%s does not answer: %v", name, err)
}

func (d *doctor) judgeRedis(name string, i redis.Info) []finding {
	advice := i.Advice()
	var out []finding
	for _, a := range advice {
		f := warn(a.Text, "%s", name)
		if a.Fatal {
			f.grade = gradeFail
		}
		out = append(out, f)
	}
	switch {
	case i.Embedded:
		out = append(out, warn("use a real Redis in production", "%s is the embedded server: it forgets everything when it ends", name))
	case len(advice) == 0:
		out = append(out, ok("%s: Redis %s, %s, append-only file on, %s", name, i.Version, i.Role, i.Policy))
	}
	if d.cfg.Redis.Password == "" && !allLoopback(d.cfg.Redis.Addrs) {
		out = append(out, warn("set a password on the server (ACL SETUSER) and in redis.password", "%s lets everybody in who reaches it", name))
	} else if !d.cfg.Redis.TLS.Enabled && !allLoopback(d.cfg.Redis.Addrs) {
		out = append(out, warn("set redis.tls.enabled, unless the network is private", "%s: tokens travel unencrypted", name))
	}
	return out
}

// checkClock compares our clock with the server's, halfway through the question.
func (d *doctor) checkClock(ctx context.Context, name string, c *redis.Client) []finding {
	before := d.now()
	theirs, err := c.Time(ctx)
	if err != nil {
		return []finding{fail("allow the user TIME: caps are counted by the server's clock", "%s: %v", name, err)}
	}
	after := d.now()
	skew := theirs.Sub(before.Add(after.Sub(before) / 2)).Round(time.Millisecond)
	if skew.Abs() > clockSkew {
		return []finding{fail("let NTP (chrony, systemd-timesyncd) keep both clocks", "clock: that of %s is %s from ours", name, skew)}
	}
	return []finding{ok("clock: that of %s is within %s of ours", name, clockSkew)}
}

// checkClaim does what the door does with every callback, on a key of its own.
func checkClaim(ctx context.Context, name string, c *redis.Client) finding {
	const todo = "the user needs read, write and script rights on keys with redis.prefix, and the server must take writes"
	key, value := redis.Key("doctor", rand.Text()), rand.Text()
	if _, set, err := c.SetNXGet(ctx, key, value, 10*time.Second); err != nil || !set {
		return fail(todo, "%s: a claim cannot be made: %v", name, err)
	}
	if released, err := c.CompareAndDelete(ctx, key, value); err != nil || !released {
		return fail(todo, "%s: a claim cannot be released: %v", name, err)
	}
	return ok("%s: a claim was made and released", name)
}

// allLoopback reports whether nothing leaves this machine.
func allLoopback(addrs []string) bool {
	for _, a := range addrs {
		host, _, err := net.SplitHostPort(a)
		ip := net.ParseIP(host)
		if err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}
