package sender

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

// What did not reach WeChat is not paid for, what may have is; parts are paid
// together.
func TestCreditsFollowTheAnswers(t *testing.T) {
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
	now := time.Now()
	l, err := credit.New(cfg, c, func() time.Time { return now }, nil)
	require.NoError(t, err)
	s := &Sender{credits: l, now: func() time.Time { return now }}

	p := aReply(wire.PreferDuplicate)
	p.base.OpenID, p.born, p.parts = "u", now, 2
	l.Note(credit.Act{Account: "shop", OpenID: "u", ID: "1", MsgType: "text", CreateTime: now.Unix(), ReceivedAt: now.UnixMilli()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, l.Run(ctx))
	left := func() (n int) {
		for {
			tk := l.Take(t.Context(), "shop", "u", n+1, now)
			if tk.Verdict != credit.Granted {
				break
			}
			l.Back(t.Context(), tk, n+1)
			n++
		}
		return n
	}
	for _, step := range []struct {
		class  class
		code   int
		left   int
		onward bool
	}{
		{class: unsent, left: 5}, {class: tooFast, code: 45011, left: 5}, {class: badToken, left: 5},
		{class: unsure, left: 4}, {class: sent, left: 2, onward: true},
	} {
		g := tried()
		require.Nil(t, s.afford(t.Context(), p, g))
		require.Equal(t, 2, g.reserved)
		s.spend(t.Context(), p, g, answer{class: step.class, code: step.code})
		if step.onward {
			require.Equal(t, 1, g.reserved)
			g.part++ // the second part goes on what the first has paid
			require.Nil(t, s.afford(t.Context(), p, g))
			s.spend(t.Context(), p, g, answer{class: sent})
		}
		require.Zero(t, g.reserved)
		require.Equal(t, step.left, left(), "after %s", step.class)
	}

	g := tried()
	p.parts = 3
	e := s.afford(t.Context(), p, g)
	require.Equal(t, wire.Expired, e.receipt.State)
	require.Contains(t, e.reason, windowSpent)
	g.unsure = 1
	require.Equal(t, wire.Unknown, s.afford(t.Context(), p, g).receipt.State)
	p.parts, g = 1, tried()
	require.Nil(t, s.afford(t.Context(), p, g))
	require.Nil(t, s.lapsed(p, g, now.Add(47*time.Hour)))
	require.Equal(t, wire.Expired, s.lapsed(p, g, now.Add(48*time.Hour)).receipt.State)
	s.spend(t.Context(), p, g, answer{class: noUser, code: 45047})
	require.NotNil(t, s.afford(t.Context(), p, tried()), "WeChat knew better")

	var none Sender
	none.now = s.now
	require.Nil(t, none.afford(t.Context(), p, tried()))
	require.Nil(t, s.afford(t.Context(), aPush(), tried()))
}
