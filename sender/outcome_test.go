package sender

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/fault"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/sender/intent"
)

var day = time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)

func aPush() *parcel {
	return &parcel{key: intent.Key{ID: "2"}, api: wechat.APITemplateSend, account: "shop", base: wire.Receipt{MessageKind: wire.KindPush}}
}

func aReply(class string) *parcel {
	return &parcel{key: intent.Key{ID: "2"}, api: wechat.APICustomSend, account: "shop", class: class, base: wire.Receipt{MessageKind: wire.KindReply}}
}

func tried() *progress { return &progress{begun: true, firstTry: day, requests: 1} }

func code(api wechat.API, n int) error {
	return &wechat.APIError{API: api, Code: n, Msg: "words rid: 65f-1", HTTPStatus: 200, Ambiguous: wechat.ActionOf(n, api) == wechat.ActionRetry}
}

// What every errcode of wechat.md 6.1 does to a push at its first try.
func TestErrcodes(t *testing.T) {
	const again = wire.State("")
	for _, c := range []struct {
		class class
		state wire.State
		codes []int
	}{
		{unsure, again, []int{-1, 268487001, 268487002, 268488001, 9001002, 61450}},
		{tooFast, again, []int{45011, 42010, 45066, 45169, 46007, 45061}},
		{badToken, again, []int{40001, 40014, 42001, 42006, 61005, 61006}},
		{stopped, again, []int{40013, 40125, 40243, 41002, 41004, 40002, 50004, 50007, 45087, 45102, 45501, 61003, 61007, 40164, 61004, 89503, 89506, 89507}},
		{apiStopped, again, []int{48001, 48004}},
		{noQuota, again, []int{45009, 45028, 45040, 45093}},
		{noUser, wire.Rejected, []int{40003, 43004, 50005, 43101, 48002, 43019, 46004, 43005, 45036, 49003, 70000, 50002, 45015, 45047}},
		{noMessage, wire.Rejected, []int{40004, 40007, 40008, 40033, 40035, 40036, 40039, 40165, 40166, 40249, 41006, 44002, 45002, 45008, 47001, 47002, 47003, 41030, 41001, 43001, 43002, 40038, 12345}},
		{noTemplate, wire.Rejected, []int{40037, 43100, 43116}},
	} {
		for _, n := range c.codes {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				a := classify(nil, wechat.SendResult{}, code(wechat.APITemplateSend, n))
				require.Equal(t, c.class, a.class)
				require.Equal(t, n, a.code)
				e, wait := decide(aPush(), tried(), a, DefaultConfig().Retry, day)
				if c.state == again {
					require.Nil(t, e)
					if c.class != badToken {
						require.Positive(t, wait)
					}
					return
				}
				require.NotNil(t, e)
				require.Equal(t, c.state, e.receipt.State)
				require.Equal(t, n, e.receipt.ErrCode)
				require.Equal(t, "words", e.receipt.Detail, "the request's id would make every failure a reason of its own")
				require.NotEmpty(t, e.receipt.Reason)
				require.False(t, e.park)
			})
		}
	}
}

func TestAnswersWithoutErrcode(t *testing.T) {
	cause := errors.New("connection reset")
	for _, c := range []struct {
		err  error
		want class
	}{
		{nil, sent},
		{&wechat.APIError{API: wechat.APITemplateSend, NotSent: true, Err: cause}, unsent},
		{&wechat.APIError{API: wechat.APITemplateSend, Ambiguous: true, Err: cause}, unsure},
		{&wechat.APIError{API: wechat.APITemplateSend, HTTPStatus: 502, Ambiguous: true, Err: cause}, unsure},
		{&wechat.APIError{API: wechat.APITemplateSend, HTTPStatus: 403, Err: cause}, unsent},
		{fault.New(fault.Invalid, "call", "touser: it is not an openid"), noMessage},
		{context.Canceled, noMessage},
	} {
		require.Equal(t, c.want, classify(nil, wechat.SendResult{}, c.err).class, "%v", c.err)
	}
	e, _ := decide(aPush(), tried(), classify(nil, wechat.SendResult{MsgID: "9007199254740993"}, nil), DefaultConfig().Retry, day)
	require.Equal(t, wire.Accepted, e.receipt.State)
	require.Equal(t, "9007199254740993", e.receipt.MsgID)
}

func TestPushThatMayHaveArrivedGoesAgainForEightMinutes(t *testing.T) {
	r := DefaultConfig().Retry
	g := tried()
	e, wait := decide(aPush(), g, answer{class: unsure}, r, day.Add(5*time.Second))
	require.Nil(t, e)
	require.Positive(t, wait)
	require.Nil(t, stale(aPush(), g, r, day.Add(8*time.Minute-time.Millisecond)))
	e = stale(aPush(), g, r, day.Add(8*time.Minute))
	require.Equal(t, wire.Unknown, e.receipt.State, "G9")
	e, _ = decide(aPush(), g, answer{class: unsure}, r, day.Add(8*time.Minute))
	require.Equal(t, wire.Unknown, e.receipt.State)
	require.Nil(t, stale(aPush(), tried(), r, day.Add(time.Hour)), "what certainly did not arrive may go later")
}

func TestReplyThatMayHaveArrived(t *testing.T) {
	r := DefaultConfig().Retry
	e, _ := decide(aReply(wire.PreferLoss), tried(), answer{class: unsure}, r, day)
	require.Equal(t, wire.Unknown, e.receipt.State)
	require.False(t, e.receipt.PossibleDuplicate, "it went once")

	g := tried()
	e, wait := decide(aReply(wire.PreferDuplicate), g, answer{class: unsure}, r, day)
	require.Nil(t, e)
	require.Positive(t, wait)
	g.requests++
	twice := *g
	e, _ = decide(aReply(wire.PreferDuplicate), g, answer{class: sent}, r, day)
	require.Equal(t, wire.Accepted, e.receipt.State)
	require.True(t, e.receipt.PossibleDuplicate)
	require.Equal(t, 2, e.receipt.Attempt)
	e, _ = decide(aReply(wire.PreferDuplicate), &twice, answer{class: unsure}, r, day)
	require.Equal(t, wire.Unknown, e.receipt.State, "not a third time")
	require.True(t, e.receipt.PossibleDuplicate)
}

// A subscription is used up by the first try: the refusal of the second one
// says nothing about the first.
func TestRefusalAfterDoubtIsNoRejection(t *testing.T) {
	g := tried()
	g.unsure = 1
	e, _ := decide(aPush(), g, answer{class: noUser, code: 43101}, DefaultConfig().Retry, day)
	require.Equal(t, wire.Unknown, e.receipt.State)
	require.Equal(t, 43101, e.receipt.ErrCode)
	g = tried()
	g.unsure = 1
	e, _ = decide(aPush(), g, answer{class: noMessage, code: 47003}, DefaultConfig().Retry, day)
	require.Equal(t, wire.Rejected, e.receipt.State, "a wrong message was as wrong the first time")
}

func TestTriesAreBounded(t *testing.T) {
	r := DefaultConfig().Retry
	g := tried()
	var e *ending
	n := 1
	for ; e == nil; n++ {
		require.Less(t, n, 1000)
		g.requests = n
		e, _ = decide(aPush(), g, answer{class: unsent}, r, day)
	}
	require.Equal(t, wire.Dead, e.receipt.State)
	require.True(t, e.park)
	require.Equal(t, r.MaxTries, e.receipt.Attempt)

	e, _ = decide(aPush(), tried(), answer{class: unsent}, r, day.Add(r.MaxAge+time.Second))
	require.Equal(t, wire.Dead, e.receipt.State)
	for _, c := range []class{tooFast, noQuota, stopped, apiStopped} {
		g := tried()
		for range 1000 {
			e, _ := decide(aPush(), g, answer{class: c}, r, day.Add(20*time.Hour))
			require.Nil(t, e, "%s is no failure of the message", c)
		}
	}
}

func TestRefusedTokens(t *testing.T) {
	g := tried()
	r := DefaultConfig().Retry
	for range 2 {
		e, wait := decide(aPush(), g, answer{class: badToken}, r, day)
		require.Nil(t, e)
		require.Zero(t, wait, "at once with the other token")
	}
	_, wait := decide(aPush(), g, answer{class: badToken}, r, day)
	require.Positive(t, wait)
}

func TestExpiry(t *testing.T) {
	p := aPush()
	p.expires = day.Add(time.Minute)
	g := &progress{}
	require.Nil(t, stale(p, g, DefaultConfig().Retry, day.Add(time.Minute-1)))
	require.Equal(t, wire.Expired, stale(p, g, DefaultConfig().Retry, day.Add(time.Minute)).receipt.State)
	g = tried()
	g.unsure = 1
	require.Equal(t, wire.Unknown, stale(p, g, DefaultConfig().Retry, day.Add(time.Minute)).receipt.State, "it may have arrived before")
}

// Whatever WeChat answers in whatever order: a push is never tried more than
// eight minutes after a try that may have arrived, a reply of class
// prefer_loss never after doubt, and every message ends.
func TestEveryMessageEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := DefaultConfig().Retry
		p := rapid.SampledFrom([]*parcel{aPush(), aReply(wire.PreferDuplicate), aReply(wire.PreferLoss)}).Draw(t, "parcel")
		now := day
		g := &progress{begun: true, firstTry: now, unsure: rapid.IntRange(0, 1).Draw(t, "past")}
		if g.unsure == 1 {
			now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "age")) * time.Second)
		}
		e := doubtfulPast(p, g, r, now)
		for n := 0; e == nil; n++ {
			if n > 2000 {
				t.Fatalf("no end after %d tries: %+v", n, g)
			}
			if e = stale(p, g, r, now); e != nil {
				break
			}
			if g.unsure > 0 && p.push() && now.Sub(g.firstTry) >= r.SafeRepeat {
				t.Fatalf("push tried %s after its first try", now.Sub(g.firstTry))
			}
			if g.unsure > 0 && p.class == wire.PreferLoss {
				t.Fatalf("reply that prefers loss tried after doubt")
			}
			g.requests++
			a := answer{class: rapid.SampledFrom([]class{sent, unsure, unsent, badToken, tooFast, noUser, noMessage, noTemplate}).Draw(t, "class")}
			if n > 500 {
				a.class = unsent
			}
			var wait time.Duration
			e, wait = decide(p, g, a, r, now)
			now = now.Add(wait + 50*time.Millisecond)
		}
		if !e.receipt.State.Terminal() && e.receipt.State != wire.Accepted {
			t.Fatalf("ended as %s", e.receipt.State)
		}
	})
}

func doubtfulPast(p *parcel, g *progress, r Retry, now time.Time) *ending {
	if g.unsure == 0 {
		return nil
	}
	return doubtful(p, g, r, now)
}
