package sender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
)

func aRoad(t *testing.T, quota time.Duration) (*road, *road, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	var whole brake
	l := ratelimit.Limit{Rate: 160, Burst: 16, Concurrency: 8}
	return newRoad("shop", wechat.APITemplateSend, l, &whole, quota, nil, zap.New(core)),
		newRoad("shop", wechat.APICustomSend, l, &whole, quota, nil, zap.New(core)), logs
}

// meet is one request at a time with an answer.
func meet(t *testing.T, r *road, now time.Time, a answer) {
	t.Helper()
	tk, wait := r.enter(now)
	require.Zero(t, wait)
	r.learn(tk, a, "tmpl", now)
}

func TestTroubleClosesARoadAndOneProbeOpensIt(t *testing.T) {
	r, other, logs := aRoad(t, 0)
	for range troubleAfter - 1 {
		meet(t, r, day, answer{class: unsure})
	}
	meet(t, r, day, answer{class: noUser}) // WeChat answers: the run is over
	for range troubleAfter {
		meet(t, r, day, answer{class: unsent})
	}
	_, wait := r.enter(day)
	require.Equal(t, time.Second, wait)
	_, wait = other.enter(day)
	require.Zero(t, wait, "another API is not concerned")

	now := day.Add(time.Second)
	probe, wait := r.enter(now)
	require.Zero(t, wait)
	for range 50 {
		_, wait = r.enter(now)
		require.Equal(t, lookAgain, wait, "one probe at a time")
	}
	r.learn(probe, answer{class: unsure}, "", now)
	_, wait = r.enter(now)
	require.Equal(t, 2*time.Second, wait, "the pause doubles")

	now = now.Add(2 * time.Second)
	probe, _ = r.enter(now)
	r.back(probe) // the probe's letter had to go without news
	probe, wait = r.enter(now)
	require.Zero(t, wait, "another one may probe")
	r.learn(probe, answer{class: sent}, "", now)
	for range 50 {
		_, wait = r.enter(now)
		require.Zero(t, wait)
	}
	require.Equal(t, 1, logs.FilterMessageSnippet("does not answer properly").Len(), "one line per problem")
	require.Equal(t, 1, logs.FilterMessageSnippet("open again").Len())
}

func TestPausesAreBounded(t *testing.T) {
	r, _, _ := aRoad(t, 0)
	now := day
	longest := time.Duration(0)
	for range troubleAfter + 40 {
		tk, wait := r.enter(now)
		longest = max(longest, wait)
		now = now.Add(wait)
		if wait > 0 {
			tk, wait = r.enter(now)
			require.Zero(t, wait)
		}
		r.learn(tk, answer{class: unsent}, "", now)
	}
	require.Equal(t, 30*time.Second, longest)
}

func TestRefusedAccountClosesAllItsRoads(t *testing.T) {
	r, other, logs := aRoad(t, 0)
	before, _ := other.enter(day) // under way when the account is stopped
	meet(t, r, day, answer{class: stopped, code: 40164})
	for _, x := range []*road{r, other} {
		_, wait := x.enter(day)
		require.Equal(t, 30*time.Second, wait)
	}
	require.Positive(t, other.stillOpen(before, day), "it finds out behind its place in the queue")
	other.learn(before, answer{class: stopped, code: 40164}, "", day)
	_, wait := r.enter(day)
	require.Equal(t, 30*time.Second, wait, "what was under way does not lengthen the pause")
	require.Equal(t, 1, logs.FilterMessageSnippet("IP whitelist").Len())

	now := day.Add(30 * time.Second)
	probe, wait := other.enter(now)
	require.Zero(t, wait)
	_, wait = r.enter(now)
	require.Equal(t, lookAgain, wait, "one probe for the whole account")
	other.learn(probe, answer{class: sent}, "", now)
	_, wait = r.enter(now)
	require.Zero(t, wait)
}

func TestNoRightToOneAPIStopsThatAPIOnly(t *testing.T) {
	r, other, _ := aRoad(t, 0)
	meet(t, r, day, answer{class: apiStopped, code: 48001})
	_, wait := r.enter(day)
	require.Equal(t, 30*time.Second, wait)
	_, wait = other.enter(day)
	require.Zero(t, wait)
}

func TestQuotaComesBackAtMidnightInBeijing(t *testing.T) {
	r, other, _ := aRoad(t, 0)
	now := time.Date(2026, 11, 30, 15, 59, 0, 0, time.UTC) // 23:59 in Beijing
	meet(t, r, now, answer{class: noQuota, code: 45009})
	_, wait := r.enter(now)
	require.Equal(t, time.Minute+5*time.Second, wait)
	_, wait = other.enter(now)
	require.Zero(t, wait)
	require.Equal(t, time.Date(2026, 12, 1, 16, 0, 0, 0, time.UTC), midnight(time.Date(2026, 11, 30, 16, 0, 0, 0, time.UTC)).UTC())

	r, _, _ = aRoad(t, time.Hour)
	meet(t, r, now, answer{class: noQuota, code: 45009})
	_, wait = r.enter(now)
	require.Equal(t, time.Hour, wait, "or as configured")
}

func TestTooFastHalvesTheRateAndItRecovers(t *testing.T) {
	r, _, _ := aRoad(t, 0)
	rate := func() float64 { return r.pace.(*ratelimit.Limiter).Limit().Rate }
	now := day
	tickets := make([]ticket, 8)
	for i := range tickets {
		tickets[i], _ = r.enter(now)
	}
	for _, tk := range tickets {
		r.learn(tk, answer{class: tooFast, code: 45011}, "", now)
	}
	require.Equal(t, 80.0, rate(), "eight refusals of one moment halve once")
	_, wait := r.enter(now)
	require.Equal(t, 5*time.Second, wait)
	for range 20 {
		now = now.Add(2 * time.Minute)
		r.slow(now)
	}
	require.Equal(t, 10.0, rate(), "not below a sixteenth")
	r.setLimit(ratelimit.Limit{Rate: 320, Burst: 16, Concurrency: 8}, 0, 0)
	require.Equal(t, 20.0, rate(), "a new limit does not undo it")
	for steps := 0; rate() < 320; steps++ {
		require.Less(t, steps, 20)
		now = now.Add(recoverEvery)
		r.recover(now)
	}
	require.Equal(t, 1.0, r.share())
}

func TestRefusedTemplateRestsAlone(t *testing.T) {
	r, _, logs := aRoad(t, 0)
	meet(t, r, day, answer{class: noTemplate, code: 43116})
	a, refused := r.refusedTemplate("tmpl", day.Add(templateRest-1))
	require.True(t, refused)
	require.Equal(t, 43116, a.code)
	_, refused = r.refusedTemplate("tmpl", day.Add(templateRest))
	require.False(t, refused)
	_, refused = r.refusedTemplate("another", day)
	require.False(t, refused)
	_, wait := r.enter(day)
	require.Zero(t, wait)
	require.Equal(t, 1, logs.FilterMessageSnippet("refuses a template").Len())
	for i := range 5 * maxTemplates {
		r.refuseTemplate(string(rune(i+1000)), a, day)
	}
	require.LessOrEqual(t, len(r.templates), maxTemplates)
}

func TestUserAfterUserMeansTheAccount(t *testing.T) {
	r, other, logs := aRoad(t, 0)
	for range everybodyAfter {
		meet(t, r, day, answer{class: noUser, code: codeUserLimits})
	}
	_, wait := other.enter(day)
	require.Equal(t, 30*time.Second, wait)
	require.Equal(t, 1, logs.FilterMessageSnippet("user after user").Len())
}
