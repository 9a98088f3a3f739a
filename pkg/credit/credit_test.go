package credit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/credit"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book is a ledger with a clock of its own.
type book struct {
	*credit.Ledger
	t   *testing.T
	reg *prometheus.Registry
	now time.Time
	n   int
}

func newBook(t *testing.T, cfg credit.Config) *book {
	rc := redis.DefaultConfig()
	rc.Addrs, rc.Prefix = []string{os.Getenv("TIDEGATE_TEST_REDIS")}, fmt.Sprintf("t%d", time.Now().UnixNano())
	if rc.Addrs[0] == "" {
		s, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(s.Close)
		rc.Addrs[0] = s.Addr()
	}
	rc.Timeout, cfg.Timeout = 5*time.Second, 5*time.Second // the machine may be busy
	c, err := redis.Open(rc, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	b := &book{t: t, reg: prometheus.NewRegistry(), now: time.Now().Truncate(time.Second)}
	b.Ledger, err = credit.New(cfg, c, func() time.Time { return b.now }, b.reg)
	require.NoError(t, err)
	return b
}

// does notes an act of now and gives when it was received.
func (b *book) does(a credit.Act) time.Time {
	b.n++
	a.Account, a.OpenID = "shop", "u1"
	if a.ID == "" {
		a.ID = fmt.Sprint("cb", b.n)
	}
	if a.ReceivedAt == 0 {
		a.ReceivedAt = b.now.UnixMilli()
	}
	a.CreateTime = a.ReceivedAt / 1000
	b.Note(a)
	ctx, cancel := context.WithCancel(b.t.Context())
	cancel()
	require.NoError(b.t, b.Run(ctx), "it writes what waits before it ends")
	return time.UnixMilli(a.ReceivedAt)
}

func (b *book) take(n int, cause time.Time) credit.Ticket {
	b.n++
	return b.ask(fmt.Sprint("m", b.n), n, cause)
}

// ask takes for a message that may ask again.
func (b *book) ask(message string, n int, cause time.Time) credit.Ticket {
	return b.Take(b.t.Context(), credit.Want{Account: "shop", OpenID: "u1", Message: message, N: n, Cause: cause})
}

var (
	says   = credit.Act{MsgType: "text"}
	clicks = credit.Act{MsgType: "event", Event: "CLICK"}
)

// wechat.md 4.2: five within 48 hours; then no more until he does something.
func TestMessagesOfAWindow(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	at := b.does(says)
	for range 5 {
		require.Equal(t, credit.Granted, b.take(1, at).Verdict)
	}
	require.Equal(t, credit.UsedUp, b.take(1, at).Verdict)
	b.now = b.now.Add(time.Minute)
	again := b.does(clicks)
	three := b.take(3, again)
	require.Equal(t, credit.Granted, three.Verdict, "a menu raises what is left to three")
	require.Equal(t, at.Add(48*time.Hour), three.Till, "and lasts as long as the longer window")
	require.Equal(t, credit.UsedUp, b.take(1, again).Verdict)
	b.now = at.Add(48 * time.Hour)
	require.Equal(t, credit.Closed, b.take(1, again).Verdict)
}

func TestWindowOfAMenuIsShort(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	at := b.does(clicks)
	b.now = b.now.Add(59 * time.Second)
	require.Equal(t, credit.Granted, b.take(1, at).Verdict)
	b.now = b.now.Add(time.Second)
	require.Equal(t, credit.Closed, b.take(1, at).Verdict)
	item := b.does(credit.Act{MsgType: "text", MenuItem: true})
	require.Equal(t, credit.UsedUp, b.take(4, item).Verdict, "an item of a msgmenu counts as a menu: three")
	require.Equal(t, credit.Granted, b.take(3, item).Verdict)
}

// The ledger refuses only what it knows.
func TestWhatIsNotKnownGoes(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	require.Equal(t, credit.Unknown, b.take(1, b.now).Verdict, "it has never seen him")
	at := b.does(clicks)
	b.now = b.now.Add(2 * time.Minute)
	require.Equal(t, credit.Closed, b.take(1, at).Verdict)
	unseen := b.now
	require.Equal(t, credit.Unknown, b.take(2, unseen).Verdict, "it answers an act that is not noted yet")
	b.does(credit.Act{MsgType: "text", ReceivedAt: unseen.UnixMilli()})
	require.Equal(t, credit.Granted, b.take(3, unseen).Verdict)
	require.Equal(t, credit.UsedUp, b.take(1, unseen).Verdict, "the two were paid when it was")
	require.Equal(t, credit.Unknown, (*credit.Ledger)(nil).Take(t.Context(), credit.Want{}).Verdict)
}

// An act that comes again, or late, opens nothing again.
func TestActsCountOnce(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	old := b.now
	b.now = b.now.Add(time.Second)
	a := credit.Act{MsgType: "text", ID: "cb-x"}
	at := b.does(a)
	require.Equal(t, credit.Granted, b.take(5, at).Verdict)
	b.does(a)
	b.does(credit.Act{MsgType: "text", ReceivedAt: old.UnixMilli()})
	require.Equal(t, credit.UsedUp, b.take(1, at).Verdict)
	b.does(credit.Act{MsgType: "text", ID: "cb-y", ReceivedAt: at.UnixMilli()})
	require.Equal(t, credit.Granted, b.take(1, at).Verdict, "another one of the same millisecond counts")
	b.now = b.now.Add(time.Second)
	view := b.does(credit.Act{MsgType: "event", Event: "VIEW"})
	require.Equal(t, credit.Unknown, b.take(1, view).Verdict, "an act that opens nothing is not noted")
	require.Equal(t, credit.Granted, b.take(4, at).Verdict, "and closes nothing")
	require.Equal(t, credit.UsedUp, b.take(1, at).Verdict)
}

// What did not go is given back; what WeChat knows better is learned, until the
// follower acts again.
func TestBackAndLearn(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	at := b.does(says)
	tk := b.take(5, at)
	b.Back(t.Context(), tk, 2)
	require.Equal(t, credit.Granted, b.take(2, at).Verdict)
	require.Equal(t, credit.UsedUp, b.take(1, at).Verdict)
	b.now = b.now.Add(time.Second)
	at = b.does(says)
	b.Back(t.Context(), tk, 5) // it has given back what it had
	require.Equal(t, credit.UsedUp, b.take(6, at).Verdict)

	tk = b.take(1, at)
	b.Learn(t.Context(), tk, 47003)
	require.Equal(t, credit.Granted, b.take(1, at).Verdict, "that has nothing to do with windows")
	b.Learn(t.Context(), tk, 45047)
	require.Equal(t, credit.UsedUp, b.take(1, at).Verdict)
	b.Learn(t.Context(), tk, 45015)
	require.Equal(t, credit.Closed, b.take(1, at).Verdict)
	b.now = b.now.Add(time.Second)
	at = b.does(says)
	b.Learn(t.Context(), tk, 45015)
	require.Equal(t, credit.Granted, b.take(5, at).Verdict, "he has done something since")
	require.Equal(t, 2, testutil.CollectAndCount(b.reg, "tidegate_credit_learned_total"))

	found, err := b.Erase(t.Context(), "shop", "u1")
	require.NoError(t, err)
	require.True(t, found)
	for code, verdict := range map[int]credit.Verdict{45015: credit.Closed, 45047: credit.UsedUp} {
		tk = b.take(1, at)
		require.Equal(t, credit.Unknown, tk.Verdict)
		b.Learn(t.Context(), tk, code)
		require.Equal(t, verdict, b.take(1, at).Verdict, "also where nothing was known")
		require.Equal(t, credit.Unknown, b.take(1, at.Add(time.Millisecond)).Verdict)
		_, err = b.Erase(t.Context(), "shop", "u1")
		require.NoError(t, err)
	}
}

func TestPaymentHasNoLimit(t *testing.T) {
	cfg := credit.DefaultConfig()
	cfg.Events = map[string]credit.Window{"user_pay": {Count: -1, Valid: 48 * time.Hour}}
	b := newBook(t, cfg)
	at := b.does(credit.Act{MsgType: "event", Event: "USER_PAY"})
	require.Equal(t, credit.Granted, b.take(900, at).Verdict)
	require.Equal(t, credit.Granted, b.take(900, b.does(says)).Verdict)
	b.now = b.now.Add(48 * time.Hour)
	require.Equal(t, credit.Closed, b.take(1, at).Verdict)
	require.Equal(t, credit.UsedUp, b.take(6, b.does(says)).Verdict, "the next window is an ordinary one")
}

// A time of WeChat's that cannot be is not believed; a door whose clock is behind
// closes nothing.
func TestOddTimes(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	now := b.now
	for i, c := range []struct {
		create int64
		valid  time.Duration
	}{{0, time.Minute}, {-1, time.Minute}, {1 << 62, time.Minute}, {now.Add(time.Hour).Unix(), time.Hour + time.Minute}} {
		u := fmt.Sprint("odd", i)
		b.Note(credit.Act{Account: "shop", OpenID: u, ID: "x", MsgType: "event", Event: "SCAN", CreateTime: c.create, ReceivedAt: now.UnixMilli()})
		b.does(says)
		take := func(at time.Time) credit.Verdict {
			b.now = at
			return b.Take(t.Context(), credit.Want{Account: "shop", OpenID: u, Message: at.String(), N: 1, Cause: now}).Verdict
		}
		require.Equal(t, credit.Granted, take(now))
		require.Equal(t, credit.Granted, take(now.Add(c.valid-time.Second)))
		require.Equal(t, credit.Closed, take(now.Add(c.valid)), "created %d", c.create)
		b.now = now
	}
}

// A message takes once, however often it asks: it may have died in between. What it
// has not used comes back once, and never more than the window had.
func TestMessagesTakeOnce(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	at := b.does(says)
	first := b.ask("long", 4, at)
	require.Equal(t, credit.Granted, first.Verdict)
	require.Equal(t, credit.Granted, b.ask("long", 4, at).Verdict, "it came back after a crash")
	require.Equal(t, credit.UsedUp, b.take(2, at).Verdict)
	b.Back(t.Context(), first, 3)
	b.Back(t.Context(), first, 3)
	require.Equal(t, credit.Granted, b.take(4, at).Verdict)
	require.Equal(t, credit.UsedUp, b.take(1, at).Verdict)

	b.now = b.now.Add(time.Second)
	at = b.does(clicks)
	old := b.ask("old", 3, at)
	b.now = b.now.Add(time.Second)
	at = b.does(says)
	b.Back(t.Context(), old, 3)
	require.Equal(t, credit.UsedUp, b.take(6, at).Verdict, "five are five")
	require.Equal(t, credit.Granted, b.take(5, at).Verdict)

	b.now = b.now.Add(time.Second)
	unseen := b.now
	require.Equal(t, credit.Unknown, b.ask("early", 2, unseen).Verdict)
	require.Equal(t, credit.Unknown, b.ask("early", 2, unseen).Verdict)
	b.does(credit.Act{MsgType: "text", ReceivedAt: unseen.UnixMilli()})
	require.Equal(t, credit.Granted, b.take(3, unseen).Verdict, "two were owed, not four")
	require.Equal(t, credit.UsedUp, b.take(1, unseen).Verdict)
}

// Doors have clocks of their own: a message that was received "before" a menu of
// the same moment opens its window all the same, and a debt is its own act's.
func TestLateActsCount(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	said := b.now
	b.now = b.now.Add(time.Second)
	pressed := b.does(clicks)
	b.does(credit.Act{MsgType: "text", ReceivedAt: said.UnixMilli()})
	require.Equal(t, credit.Granted, b.take(5, said).Verdict)
	require.Equal(t, credit.UsedUp, b.take(1, pressed).Verdict)

	b.now = b.now.Add(time.Second)
	lost := b.now
	require.Equal(t, credit.Unknown, b.take(1, lost).Verdict, "nobody notes this one")
	b.now = b.now.Add(time.Second)
	at := b.does(says)
	require.Equal(t, credit.Granted, b.take(5, at).Verdict, "and it is not charged to the next")
}

// Against a plain reading of the rule: one grant, which acts raise.
func TestLedgerFollowsTheRule(t *testing.T) {
	b := newBook(t, credit.DefaultConfig())
	dice := rand.New(rand.NewPCG(1, 2))
	left, till, at := 0, time.Time{}, time.Time{}
	for range 3000 {
		b.now = b.now.Add(time.Duration(1+dice.IntN(30_000)) * time.Millisecond)
		switch k := dice.IntN(8); {
		case k == 0:
			act, w := clicks, credit.DefaultConfig().Menu
			if dice.IntN(20) == 0 {
				act, w = says, credit.DefaultConfig().Message
			}
			if !b.now.Before(till) {
				left = 0
			}
			at = b.does(act)
			left = max(left, w.Count)
			if e := at.Add(w.Valid); e.After(till) {
				till = e
			}
		case at.IsZero():
		default:
			n := 1 + dice.IntN(2)
			want := credit.Granted
			switch {
			case !b.now.Before(till):
				want = credit.Closed
			case left < n:
				want = credit.UsedUp
			default:
				left -= n
			}
			require.Equal(t, want, b.take(n, at).Verdict)
		}
		if dice.IntN(400) == 0 {
			b.now = b.now.Add(48 * time.Hour)
		}
	}
}
