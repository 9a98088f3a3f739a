package ratelimit_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/slice"
)

// slaStore is a Redis of its own.
func slaStore(t *testing.T) (*redismem.Server, *redis.Client) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, slaClient(t, s.Addr(), "one")
}

// slaClient is a node's client; nodes of one name share what they count.
func slaClient(t *testing.T, addr, name string) *redis.Client {
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout, cfg.Prefix = []string{addr}, 2*time.Second, fmt.Sprintf("test:sla:%d:%s", os.Getpid(), name)
	c, err := redis.Open(cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func perHour(n int64) []slice.Rule { return []slice.Rule{{Limit: n, Period: time.Hour}} }

func newSLA(t *testing.T, c *redis.Client, now func() time.Time, change func(*ratelimit.SLAConfig)) *ratelimit.SLA {
	cfg := ratelimit.DefaultSLA()
	change(&cfg)
	var counters *slice.Counters
	if c != nil {
		counters = slice.New(c)
	}
	s, err := ratelimit.NewSLA(cfg, counters, now, nil)
	require.NoError(t, err)
	return s
}

var someone = ratelimit.SLACaller{Developer: "acme", App: "crm", User: "shop.o1"}

func TestEachRoleRefusesAndSaysWhich(t *testing.T) {
	_, c := slaStore(t)
	s := newSLA(t, c, nil, func(cfg *ratelimit.SLAConfig) {
		cfg.Developer, cfg.App, cfg.User = perHour(6), perHour(4), perHour(2)
		cfg.Apps = []ratelimit.SLAApp{{Name: "vip", User: perHour(3)}}
	})
	take := func(app, user string) ratelimit.SLAVerdict {
		return s.Take(t.Context(), ratelimit.SLACaller{Developer: "acme", App: app, User: user}, 1)
	}
	require.True(t, take("crm", "a").OK)
	v := take("crm", "a")
	require.True(t, v.OK)
	require.Equal(t, ratelimit.ScopeUser, v.Scope, "it has least left")
	require.EqualValues(t, 2, v.Used)
	v = take("crm", "a")
	require.False(t, v.OK)
	require.Equal(t, ratelimit.ScopeUser, v.Scope)
	require.EqualValues(t, 2, v.Rule.Limit)
	require.Positive(t, v.Wait)
	require.True(t, take("crm", "b").OK)
	require.True(t, take("crm", "c").OK)
	v = take("crm", "d")
	require.False(t, v.OK)
	require.Equal(t, ratelimit.ScopeApp, v.Scope)
	require.True(t, take("vip", "a").OK)
	require.True(t, take("vip", "a").OK)
	v = take("vip", "a")
	require.False(t, v.OK)
	require.Equal(t, ratelimit.ScopeDeveloper, v.Scope, "both apps together")
	v = s.Take(t.Context(), ratelimit.SLACaller{Developer: "other", App: "x", User: "y"}, 7)
	require.False(t, v.OK)
	require.Negative(t, v.Wait, "it never fits")
}

// D11: Redis away, each node admits its share, and Redis is asked again later.
func TestRedisAwayEachNodeAdmitsItsShare(t *testing.T) {
	srv, c := slaStore(t)
	now := time.Now()
	clock := func() time.Time { return now }
	rules := func(away string) func(*ratelimit.SLAConfig) {
		return func(cfg *ratelimit.SLAConfig) {
			cfg.App, cfg.User, cfg.WhenAway, cfg.MaxNodes = perHour(10), perHour(2), away, 4
		}
	}
	share, open, closed := newSLA(t, c, clock, rules("share")), newSLA(t, c, clock, rules("open")), newSLA(t, c, clock, rules("closed"))
	require.False(t, share.Take(t.Context(), someone, 1).Local)
	srv.Close()
	admitted := 0
	for i := range 20 {
		v := share.Take(t.Context(), ratelimit.SLACaller{Developer: "acme", App: "crm", User: fmt.Sprint(i)}, 1)
		require.True(t, v.Local)
		if v.OK {
			admitted++
		}
	}
	require.Zero(t, admitted, "floor(2 / 4) of a user's limit is nothing")
	roomy := newSLA(t, c, clock, func(cfg *ratelimit.SLAConfig) { cfg.App, cfg.MaxNodes = perHour(10), 4 })
	for range 20 {
		if roomy.Take(t.Context(), someone, 1).OK {
			admitted++
		}
	}
	require.Equal(t, 2, admitted, "floor(10 / 4)")
	require.True(t, open.Take(t.Context(), someone, 1).OK)
	require.False(t, closed.Take(t.Context(), someone, 1).OK)
}

func TestShadowRefusesNothing(t *testing.T) {
	s := newSLA(t, nil, nil, func(cfg *ratelimit.SLAConfig) { cfg.App, cfg.Shadow = perHour(1), true })
	require.True(t, s.Take(t.Context(), someone, 1).OK)
	v := s.Take(t.Context(), someone, 1)
	require.True(t, v.OK)
	require.EqualValues(t, 1, v.Used)
}

func TestBadSLAIsNamed(t *testing.T) {
	for want, change := range map[string]func(*ratelimit.SLAConfig){
		"status":         func(c *ratelimit.SLAConfig) { c.Status = 500 },
		"when_away":      func(c *ratelimit.SLAConfig) { c.WhenAway = "guess" },
		"max_nodes":      func(c *ratelimit.SLAConfig) { c.MaxNodes = 0 },
		"app[0]":         func(c *ratelimit.SLAConfig) { c.App = []slice.Rule{{Limit: 1}} },
		"user: 3 rules":  func(c *ratelimit.SLAConfig) { c.User = slices.Repeat(perHour(1), 3) },
		"developer[1]":   func(c *ratelimit.SLAConfig) { c.Developer = slices.Repeat(perHour(1), 2) },
		"apps[0].app[0]": func(c *ratelimit.SLAConfig) { c.Apps = []ratelimit.SLAApp{{Name: "a", App: []slice.Rule{{Limit: 1}}}} },
	} {
		cfg := ratelimit.DefaultSLA()
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), want)
	}
	require.NoError(t, ratelimit.DefaultSLA().Validate())
}
