package proxy_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/proxy"
)

func (w *world) repeats() []*wire.Repeat {
	w.t.Helper()
	var out []*wire.Repeat
	for _, r := range w.q.in("tidegate.repeats") {
		l, err := wire.Decode[wire.Repeat](r.Value, r.Headers)
		require.NoError(w.t, err)
		require.Equal(w.t, openid, string(r.Key), "all repeats of a follower are on one partition")
		out = append(out, l)
	}
	return out
}

// B3.5 with its own numbers: ten presses within ten seconds are one that is
// worked and nine that are recorded, each also as WeChat delivers it three
// times; 10.1 seconds after the first it is worked again.
func TestTenPressesInTenSeconds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wechat.ModeSafe, nil)
	deliver := func(press int) {
		for range 3 {
			requireAck(t, w.post(click(press, "balance")))
		}
	}
	begun := time.Now()
	deliver(0)
	first := time.Now() // the mark was set before
	every := time.NewTicker(500 * time.Millisecond)
	defer every.Stop()
	for press := 1; press < 10; press++ {
		<-every.C
		deliver(press)
	}
	require.Less(t, time.Since(begun), 10*time.Second, "the presses came too late to show anything")
	require.Len(t, w.q.callbacks(t), 1)
	got := w.repeats()
	require.Len(t, got, 9, "WeChat's redeliveries are none")
	ids := map[string]bool{}
	for _, r := range got {
		ids[r.ID] = true
		require.Equal(t, "CLICK:balance", r.Action)
		require.Equal(t, "same action within 10s, by proxy.repeats.rules[0]", r.Reason)
		require.Equal(t, "proxy.repeats.rules[0]", r.Rule)
		require.EqualValues(t, 10_000, r.WindowMS)
		require.Len(t, r.IdentityHash, 64)
		require.NotZero(t, r.At)
	}
	require.Len(t, ids, 9)

	<-time.After(time.Until(first.Add(10100 * time.Millisecond)))
	deliver(10)
	require.Len(t, w.q.callbacks(t), 2)
	require.Len(t, w.repeats(), 9)
}

func TestTenPressesAtOnce(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	var wg sync.WaitGroup
	for press := range 10 {
		for range 2 {
			r := w.request(click(press, "balance"), openid)
			wg.Go(func() {
				if rec := w.send(r); rec.Code != 200 {
					t.Errorf("answer %d", rec.Code)
				}
			})
		}
	}
	wg.Wait()
	require.Len(t, w.q.callbacks(t), 1)
	require.Len(t, w.repeats(), 9)
}

// Without Redis nobody can tell: every press is worked, and nothing that WeChat
// delivers again is called a repeat.
func TestPressesWithRedisAway(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	requireAck(t, w.post(click(0, "balance")))
	w.redis.Fail("LOADING Redis is loading the dataset in memory")
	for press := 1; press < 10; press++ {
		for range 3 {
			requireAck(t, w.post(click(press, "balance")))
		}
	}
	require.Empty(t, w.repeats())
	ids, unchecked := map[string]bool{}, 0
	for _, c := range w.q.callbacks(t) {
		ids[c.ID] = true
		if c.Unchecked {
			unchecked++
		}
	}
	require.Len(t, ids, 10)
	require.Equal(t, 27, unchecked, "Redis was away")
}

func TestTextIsARepeatOnlyWhereARuleSaysSo(t *testing.T) {
	twice := func(w *world, what string) {
		requireAck(t, w.post(text(1, what)))
		requireAck(t, w.post(text(1, what))) // WeChat's retry
		requireAck(t, w.post(text(2, what)))
	}
	w := newWorld(t, wechat.ModeSafe, nil)
	twice(w, "yes")
	require.Len(t, w.q.callbacks(t), 2)
	require.Empty(t, w.repeats())

	w = newWorld(t, wechat.ModeSafe, nil, func(c *proxy.Config) {
		c.Repeats.Rules = append(c.Repeats.Rules, proxy.RepeatRule{Types: []string{"text"}, Key: "balance*"})
	})
	twice(w, "balance 13800138000")
	requireAck(t, w.post(text(3, "balance")))
	require.Len(t, w.q.callbacks(t), 2)
	rs := w.repeats()
	require.Len(t, rs, 1)
	require.NotContains(t, rs[0].Action+rs[0].Reason, "138001", "what a follower wrote is in no record of a repeat")
	require.Contains(t, rs[0].Reason, "proxy.repeats.rules[1] with key balance*")
}

func TestWrongRepeatRulesAreNamed(t *testing.T) {
	window := func(d time.Duration) *time.Duration { return &d }
	for want, change := range map[string]func(*proxy.RepeatsConfig){
		"proxy.repeats.window 2h0m0s: use 1s to 1h, or 0 for off":               func(c *proxy.RepeatsConfig) { c.Window = 2 * time.Hour },
		"proxy.repeats.window 10ms":                                             func(c *proxy.RepeatsConfig) { c.Window = 10 * time.Millisecond },
		"proxy.repeats.rules[0].window -1s":                                     func(c *proxy.RepeatsConfig) { c.Rules[0].Window = window(-time.Second) },
		`proxy.repeats.rules[0].types: "click": WeChat writes it CLICK`:         func(c *proxy.RepeatsConfig) { c.Rules[0].Types = []string{"click"} },
		`proxy.repeats.rules[0].types: "event" is every event`:                  func(c *proxy.RepeatsConfig) { c.Rules[0].Types = []string{"event"} },
		`proxy.repeats.rules[0].types: "image" messages are never the same`:     func(c *proxy.RepeatsConfig) { c.Rules[0].Types = []string{"image"} },
		`proxy.repeats.rules[0].types: "TEMPLATESENDJOBFINISH" is WeChat's rep`: func(c *proxy.RepeatsConfig) { c.Rules[0].Types = []string{"TEMPLATESENDJOBFINISH"} },
		`proxy.repeats.rules[0].types: "a b" is no event's name`:                func(c *proxy.RepeatsConfig) { c.Rules[0].Types = []string{"a b"} },
		"proxy.repeats.rules[0].key: 129 bytes, use at most 128":                func(c *proxy.RepeatsConfig) { c.Rules[0].Key = strings.Repeat("k", 129) },
		"proxy.repeats.rules: 101 rules, use at most 100":                       func(c *proxy.RepeatsConfig) { c.Rules = make([]proxy.RepeatRule, 101) },
		"proxy.repeats.rules[0].types: 101 types, use at most 100":              func(c *proxy.RepeatsConfig) { c.Rules[0].Types = make([]string, 101) },
	} {
		c := proxy.DefaultConfig()
		require.NoError(t, c.Validate())
		change(&c.Repeats)
		require.ErrorContains(t, c.Validate(), want)
	}
}
