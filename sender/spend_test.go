package sender

import (
	"context"
	"fmt"
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
	hears := func(later time.Duration) {
		now = now.Add(later)
		l.Note(credit.Act{Account: "shop", OpenID: "u", ID: now.String(), MsgType: "text", CreateTime: now.Unix(), ReceivedAt: now.UnixMilli()})
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it writes what waits before it ends
		require.NoError(t, l.Run(ctx))
	}
	hears(0)
	take := func(message string, n int) credit.Ticket {
		return l.Take(t.Context(), credit.Want{Account: "shop", OpenID: "u", Message: message, N: n, Cause: now})
	}
	left := func() (n int) {
		for {
			tk := take("test", n+1)
			if tk.Verdict != credit.Granted {
				return n
			}
			l.Back(t.Context(), tk, n+1)
			n++
		}
	}
	for i, step := range []struct {
		what  string
		state wire.State
		part  int
		doubt int
		left  int
	}{
		{"its tries were used up", wire.Dead, 0, 0, 5},
		{"it may have arrived", wire.Unknown, 0, 1, 3},
		{"only its first part went", wire.Rejected, 1, 0, 2},
		{"it was sent", wire.Accepted, 1, 0, 0},
	} {
		g := tried()
		p.key.ID = fmt.Sprint(i)
		require.Nil(t, s.afford(t.Context(), p, g), step.what)
		require.Nil(t, s.afford(t.Context(), p, g), "it is tried again")
		g.part, g.unsure = step.part, step.doubt
		s.giveBack(t.Context(), p, g, end(p, g, step.state, "", now))
		require.Equal(t, step.left, left(), step.what)
	}

	g := tried()
	p.key.ID = "late"
	e := s.afford(t.Context(), p, g)
	require.Equal(t, wire.Expired, e.receipt.State)
	require.Equal(t, windowSpent, e.reason)
	g.unsure = 1
	require.Equal(t, wire.Unknown, s.afford(t.Context(), p, g).receipt.State)

	// While it waits for its permit the window ends; but he has written again.
	hears(time.Second)
	p.born, g = now, tried()
	require.Nil(t, s.afford(t.Context(), p, g))
	require.Nil(t, s.lapsed(t.Context(), p, g))
	now = now.Add(48*time.Hour - time.Second)
	hears(0)
	now = now.Add(time.Second)
	require.Nil(t, s.lapsed(t.Context(), p, g))
	now = now.Add(48 * time.Hour)
	require.Equal(t, wire.Expired, s.lapsed(t.Context(), p, g).receipt.State)

	hears(time.Second)
	p.born, p.key.ID, g = now, "refused", tried()
	require.Nil(t, s.afford(t.Context(), p, g))
	s.learn(t.Context(), g, answer{class: noUser, code: 45047})
	s.giveBack(t.Context(), p, g, end(p, g, wire.Rejected, "", now))
	require.Zero(t, left(), "WeChat knew better, and nothing is given back")

	none := Sender{now: s.now}
	require.Nil(t, none.afford(t.Context(), p, tried()))
	require.Nil(t, s.afford(t.Context(), aPush(), tried()))
}
