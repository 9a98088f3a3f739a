package sender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
)

func TestAccountsExceptionsFromTheTable(t *testing.T) {
	p, err := newPolicy([]ErrorRule{
		{Codes: []int{99999, 45011}, Do: wechat.ActionUser},
		{Codes: []int{45011}, API: "template", Do: wechat.ActionQuota},
	})
	require.NoError(t, err)
	require.Equal(t, noQuota, classify(p, wechat.SendResult{}, code(wechat.APITemplateSend, 45011)).class, "the narrower rule goes first")
	require.Equal(t, noUser, classify(p, wechat.SendResult{}, code(wechat.APICustomSend, 45011)).class)
	require.Equal(t, noUser, classify(p, wechat.SendResult{}, code(wechat.APICustomSend, 99999)).class)
	require.Equal(t, badToken, classify(p, wechat.SendResult{}, code(wechat.APICustomSend, 40001)).class, "the table for the rest")
	require.Equal(t, noMessage, classify(nil, wechat.SendResult{}, code(wechat.APICustomSend, 99999)).class)
	p, err = newPolicy([]ErrorRule{{Codes: []int{99999}, Do: wechat.ActionRetry}})
	require.NoError(t, err)
	require.Equal(t, unsure, classify(p, wechat.SendResult{}, code(wechat.APICustomSend, 99999)).class, "what is retried may have arrived")
}

func TestWrongExceptions(t *testing.T) {
	for says, r := range map[string]ErrorRule{
		"name 1 to 100":                {Do: wechat.ActionUser},
		`do: "none"`:                   {Codes: []int{45011}, Do: wechat.ActionNone},
		`do: "success"`:                {Codes: []int{45011}, Do: wechat.ActionSuccess},
		`do: "sometimes"`:              {Codes: []int{45011}, Do: "sometimes"},
		"0 says that WeChat":           {Codes: []int{0}, Do: wechat.ActionUser},
		"44007 says that WeChat":       {Codes: []int{44007}, Do: wechat.ActionUser},
		"-1 leaves open":               {Codes: []int{-1}, Do: wechat.ActionSlow},
		`api: "pigeon"`:                {Codes: []int{45011}, API: "pigeon", Do: wechat.ActionUser},
		"45011 is ruled twice":         {Codes: []int{45011, 45011}, Do: wechat.ActionUser},
		"errors[0]: codes: 61450 leav": {Codes: []int{61450}, API: "replies", Do: wechat.ActionRequest},
	} {
		require.ErrorContains(t, ValidateErrors([]ErrorRule{r}), says)
	}
}

// T42: retries stay below a tenth of what goes, whatever fails, and one on a road
// without other traffic goes all the same.
func TestRetriesAreATenth(t *testing.T) {
	b, now := newBudget(), day
	retries := 0
	for range 10_000 {
		b.sent(false)
		for range 3 { // everybody wants to go again, three times
			if b.wait(now) == 0 {
				b.sent(true)
				retries++
			}
		}
	}
	firsts, counted := b.counts()
	require.EqualValues(t, 10_000, firsts)
	require.EqualValues(t, retries, counted)
	require.LessOrEqual(t, float64(retries), 1000+retryMost)
	require.GreaterOrEqual(t, retries, 1000)

	require.Positive(t, b.wait(now))
	require.LessOrEqual(t, b.wait(now), 2*retryLook)
	require.Zero(t, b.wait(now.Add(retryTrickle)))
	b.sent(true)
	require.Positive(t, b.wait(now.Add(retryTrickle)), "one")
	for range 100 {
		b.sent(true) // probes, which ask nobody
	}
	require.GreaterOrEqual(t, b.left, -retryMost, "what a long trouble owes is bounded")
}

func TestProbesNeedNoBudget(t *testing.T) {
	r, _, _ := aRoad(t, 0)
	r.budget.left = 0
	failed := &progress{last: unsure}
	require.Positive(t, r.early(ticket{}, failed, day))
	require.Zero(t, r.early(ticket{own: true}, failed, day))
	for _, c := range []class{"", badToken, tooFast} {
		require.Zero(t, r.early(ticket{}, &progress{last: c}, day), "%q is no retry", c)
	}
}

// A slow WeChat lowers the requests under way, and gets them back when it answers
// well; nobody is refused.
func TestSlowWeChatLowersConcurrency(t *testing.T) {
	r, _, _ := aRoad(t, 0) // 8 places
	now := day
	answers := func(n int, took time.Duration) {
		for range n {
			now = now.Add(took)
			r.places.heard(took, now)
		}
	}
	answers(100, 50*time.Millisecond)
	require.Equal(t, 8, r.places.places())
	moment := now.Add(2 * time.Second)
	for range 8 {
		r.places.heard(2*time.Second, moment) // all of one moment
	}
	require.Equal(t, 6, r.places.places(), "one sign")
	now = moment
	answers(9, 2*time.Second)
	require.Equal(t, least, r.places.places(), "never none")
	require.NoError(t, take(t, r), "and messages go")
	answers(60, 60*time.Millisecond)
	require.Equal(t, 8, r.places.places())
	answers(9, 2*time.Second)
	require.Equal(t, least, r.places.places())
	answers(400, time.Second)
	require.Equal(t, 8, r.places.places(), "what stays slow becomes usual")
}

// G20 at its number showed it: a WeChat that takes 3 s for every answer from now on
// is not worked with the fewest places for minutes.
func TestSlowForGoodIsUsualSoon(t *testing.T) {
	r, _, _ := aRoad(t, 0) // 8 places
	r.places.heard(time.Millisecond, day)
	fewest, now := 8, day
	for now.Sub(day) < 39*time.Second {
		now = now.Add(3 * time.Second)
		r.places.heard(3*time.Second, now)
		fewest = min(fewest, r.places.places())
	}
	require.Less(t, fewest, 8, "at first it is a sign of trouble")
	require.Greater(t, slowTimes*r.places.usual, 3*time.Second)
	for range 50 { // what 8 places hear in half a minute
		r.places.heard(3*time.Second, now)
	}
	require.Equal(t, 8, r.places.places())
}

func take(t *testing.T, r *road) error {
	t.Helper()
	leave, err := r.places.Acquire(t.Context(), first)
	if err == nil {
		leave()
	}
	return err
}

func TestPlacesFollowTheCap(t *testing.T) {
	r, _, _ := aRoad(t, 0)
	l := r.limit
	l.Concurrency = 20
	r.setLimit(l, 1, 0)
	require.Equal(t, 20, r.places.places())
	l.Concurrency = 3
	r.setLimit(l, 2, 0)
	require.Equal(t, 3, r.places.places())
	for range 3 {
		require.True(t, r.places.TryTake())
	}
	require.False(t, r.places.TryTake())
	r.places.Back()
	require.True(t, r.places.TryTake())
}
