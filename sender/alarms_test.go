package sender

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
)

// alarming is a sender without engines, with one account and a board.
func alarming(t *testing.T) (*Sender, *station, func() []string) {
	t.Helper()
	s := &Sender{alarms: alarm.NewBoard(zap.NewNop(), nil, nil), stations: map[string]*station{}}
	l := ratelimit.Limit{Rate: 160, Burst: 16, Concurrency: 8}
	st := newStation(Account{Name: "shop", AppID: "wx", Limits: Limits{Replies: l, Template: l, Subscription: l}}, time.Hour, nil, zap.NewNop())
	s.announce(st)
	return s, st, func() []string {
		out := []string{}
		for _, a := range s.alarms.Firing() {
			require.NotEmpty(t, a.Text)
			require.NotEmpty(t, a.TextZH)
			out = append(out, a.Name+" "+a.Subject)
		}
		return out
	}
}

// probe meets an answer as the probe of a road that is closed until later.
func probe(t *testing.T, r *road, a answer) {
	t.Helper()
	tk, wait := r.enter(day.Add(1000 * time.Hour))
	require.Zero(t, wait)
	r.learn(tk, a, "tmpl", day)
}

func TestWhatIsClosedRaisesItsAlarmUntilItIsOpen(t *testing.T) {
	for name, c := range map[string]struct {
		a    answer
		want string
	}{
		"account": {answer{class: stopped, code: 40164}, "account_stopped shop"},
		"api":     {answer{class: apiStopped, code: 48001}, "api_stopped shop template_send"},
		"quota":   {answer{class: noQuota, code: 45009}, "quota_used shop template_send"},
	} {
		_, st, firing := alarming(t)
		r := st.road(wechat.APITemplateSend)
		meet(t, r, day, c.a)
		require.Equal(t, []string{c.want}, firing(), name)
		probe(t, r, c.a)
		require.Equal(t, []string{c.want}, firing(), name)
		probe(t, r, answer{class: sent})
		require.Empty(t, firing(), name)
	}
}

func TestShortTroubleIsNotWorthAnAlarm(t *testing.T) {
	_, st, firing := alarming(t)
	r := st.road(wechat.APICustomSend)
	for range troubleAfter {
		meet(t, r, day, answer{class: unsent})
	}
	for range untilTold - 2 {
		probe(t, r, answer{class: unsure})
	}
	why, _, _ := r.own.state()
	require.Equal(t, causeTrouble, why)
	require.Empty(t, firing())
	probe(t, r, answer{class: unsure})
	require.Equal(t, []string{"wechat_trouble shop custom_send"}, firing())

	probe(t, r, answer{class: noQuota, code: 45009}) // another cause takes its place
	require.Equal(t, []string{"quota_used shop custom_send"}, firing())
	probe(t, r, answer{class: tooFast, code: 45011})
	require.Empty(t, firing(), "too fast mends itself")
}

// An API's alarm ends when its pause is over and nothing waits for it.
func TestAnAlarmEndsWhenThereIsNothingToProbeWith(t *testing.T) {
	for name, c := range map[string]struct {
		a    answer
		want []string
	}{
		"quota":   {answer{class: noQuota, code: 45009}, []string{"quota_used shop template_send"}},
		"api":     {answer{class: apiStopped, code: 48001}, []string{"api_stopped shop template_send"}},
		"account": {answer{class: stopped, code: 40164}, []string{"account_stopped shop"}},
	} {
		s, st, firing := alarming(t)
		all := []*station{st}
		r := st.road(wechat.APITemplateSend)
		meet(t, r, day, c.a)
		_, _, until := r.own.state()
		if name == "account" { // only a letter shows that somebody has mended it
			s.relieve(all, day.Add(1000*time.Hour))
			require.Equal(t, c.want, firing(), name)
			continue
		}
		s.relieve(all, until.Add(-time.Second))
		require.Equal(t, c.want, firing(), "%s: the pause is not over", name)
		tk, wait := r.enter(until.Add(50 * time.Second)) // a letter waits
		require.Zero(t, wait)
		s.relieve(all, until.Add(5*time.Minute))
		require.Equal(t, c.want, firing(), "%s: its probe is out", name)
		r.back(tk)
		s.relieve(all, until.Add(100*time.Second))
		require.Equal(t, c.want, firing(), "%s: it was there a moment ago", name)
		s.relieve(all, until.Add(3*time.Minute))
		require.Empty(t, firing(), name)

		probe(t, r, c.a)
		require.Equal(t, c.want, firing(), "%s: the next letter finds it as it was", name)
		probe(t, r, answer{class: sent})
		require.Empty(t, firing(), name)
	}
}

// Trouble of an API, behind an account that is closed as a whole.
func TestAnAlarmStaysWhileItsLettersWaitForTheAccount(t *testing.T) {
	s, st, firing := alarming(t)
	r := st.road(wechat.APITemplateSend)
	meet(t, r, day, answer{class: noQuota, code: 45009})
	meet(t, st.road(wechat.APICustomSend), day, answer{class: stopped, code: 40164})
	s.relieve([]*station{st}, day.Add(100*time.Hour))
	require.ElementsMatch(t, []string{"account_stopped shop", "quota_used shop template_send"}, firing())
}

func TestAnAccountThatIsTakenAwayHasNoAlarms(t *testing.T) {
	s, st, firing := alarming(t)
	meet(t, st.road(wechat.APITemplateSend), day, answer{class: stopped, code: 40013})
	s.tokenTold("shop", 1, true, "errcode 40125")
	require.Len(t, firing(), 2)
	s.forget(st)
	require.Empty(t, firing())
	probe(t, st.road(wechat.APITemplateSend), answer{class: stopped, code: 40013})
	require.Empty(t, firing(), "it drains in silence")
}

func TestTokenTroubleIsToldAtOnceWhenAPersonMustAct(t *testing.T) {
	s, _, firing := alarming(t)
	for n := 1; n < untilTold; n++ {
		s.tokenTold("shop", n, false, errors.New("away").Error())
		require.Empty(t, firing())
	}
	s.tokenTold("shop", untilTold, false, "away")
	require.Equal(t, []string{"token_trouble shop"}, firing())
	s.tokenTold("shop", 0, false, "")
	require.Empty(t, firing())
	s.tokenTold("shop", 1, true, "errcode 40125")
	require.Equal(t, []string{"token_trouble shop"}, firing())
}
