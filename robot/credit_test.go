package robot

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/credit"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wire"
)

// What robots see opens the windows that senders ask about.
func TestActsOpenWindows(t *testing.T) {
	mem, err := redismem.Start("")
	require.NoError(t, err)
	t.Cleanup(mem.Close)
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Timeout = []string{mem.Addr()}, 5*time.Second
	c, err := redis.Open(rc, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	cfg := credit.DefaultConfig()
	cfg.Timeout = 5 * time.Second
	l, err := credit.New(cfg, c, nil, nil)
	require.NoError(t, err)
	r := &Robot{d: Deps{Credits: l}}
	now := time.Now()
	at := func(openid string, change func(*wire.Callback)) string {
		cb := &wire.Callback{ID: "id-" + openid, Account: "shop", OpenID: openid, MsgType: "text", CreateTime: now.Unix(), ReceivedAt: now.UnixMilli()}
		change(cb)
		r.note(cb)
		return openid
	}
	want := map[string]int{
		at("text", func(*wire.Callback) {}): 5,
		at("item", func(c *wire.Callback) { c.Fields = map[string]string{"bizmsgmenuid": "bill"} }): 3,
		at("menu", func(c *wire.Callback) { c.MsgType, c.Event = "event", "CLICK" }):                3,
	}
	unknown := []string{
		at("view", func(c *wire.Callback) { c.MsgType, c.Event = "event", "VIEW" }),
		at("again", func(c *wire.Callback) { c.ReplayOf = "id-0" }),
		at("odd", func(c *wire.Callback) { c.Quarantined = "two openids" }),
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it writes what waits before it ends
	require.NoError(t, l.Run(ctx))
	take := func(openid, message string, n int) credit.Ticket {
		return l.Take(t.Context(), credit.Want{Account: "shop", OpenID: openid, Message: message, N: n, Cause: now})
	}
	for openid, n := range want {
		require.Equal(t, credit.UsedUp, take(openid, "a", n+1).Verdict, openid)
		require.Equal(t, credit.Granted, take(openid, "b", n).Verdict, openid)
	}
	for _, openid := range unknown {
		require.Equal(t, credit.Unknown, take(openid, "c", 1).Verdict, openid)
	}
	(&Robot{}).note(&wire.Callback{OpenID: "u"})
}
