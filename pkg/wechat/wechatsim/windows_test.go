package wechatsim

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// userActs lets an act change windows without pushing anything.
func userActs(s *Sim, stim Stimulus) { s.accounts[0].act(stim, s.clock.Now()) }

// sends returns the errcodes of n customer-service messages in a row.
func sends(t *testing.T, s *Sim, openid string, n int) []int {
	t.Helper()
	token := stable(t, s, false).Token
	var codes []int
	for range n {
		codes = append(codes, post(t, s, PathCustomSend, token, textTo(openid, "hi")).Errcode)
	}
	return codes
}

func TestWindowsByAct(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(openid string) Stimulus
		n    int
		life time.Duration
	}{
		"message":      {func(id string) Stimulus { return Text(id, "x") }, 5, 48 * time.Hour},
		"menu":         {func(id string) Stimulus { return Menu(id, "k") }, 3, time.Minute},
		"scan":         {func(id string) Stimulus { return Scan(id, "k") }, 3, time.Minute},
		"subscribe":    {func(id string) Stimulus { return Subscribe(id, "") }, 3, time.Minute},
		"msgmenu":      {func(id string) Stimulus { return MsgMenu(id, "101", "满意") }, 3, time.Minute},
		"link button":  {func(id string) Stimulus { return View(id, "http://x.invalid/") }, 0, 0},
		"position":     {Location, 0, 0},
		"nothing ever": {func(string) Stimulus { return Stimulus{OpenID: "stranger"} }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := quietSim(t, nil)
			user := anyone(t, s)
			userActs(s, c.act(user))
			codes := sends(t, s, user, c.n+1)
			for _, code := range codes[:c.n] {
				require.Zero(t, code)
			}
			if c.n == 0 {
				require.Equal(t, 45015, codes[0])
				return
			}
			require.Equal(t, 45047, codes[c.n])
			userActs(s, c.act(user))
			require.NoError(t, s.Advance(c.life-time.Second))
			require.Zero(t, sends(t, s, user, 1)[0])
			require.NoError(t, s.Advance(time.Second))
			require.Equal(t, 45015, sends(t, s, user, 1)[0])
		})
	}
}

func TestUnsubscribingClosesTheWindow(t *testing.T) {
	s := quietSim(t, nil)
	user := anyone(t, s)
	userActs(s, Text(user, "x"))
	userActs(s, Unsubscribe(user))
	require.Equal(t, []int{45015}, sends(t, s, user, 1))
}

func TestAllowancesDoNotAddUp(t *testing.T) {
	s := quietSim(t, nil)
	user := anyone(t, s)
	userActs(s, Text(user, "x"))
	userActs(s, Menu(user, "k"))
	require.Equal(t, []int{0, 0, 0, 0, 0, 45047}, sends(t, s, user, 6))
	userActs(s, Menu(user, "k")) // raises the count to 3 and keeps the 48 hours
	require.NoError(t, s.Advance(time.Hour))
	require.Equal(t, []int{0, 0, 0, 45047}, sends(t, s, user, 4))
}

func TestSeparateWindows(t *testing.T) {
	s := quietSim(t, func(c *Config) { c.Open.SeparateWindows = true })
	user := anyone(t, s)
	userActs(s, Text(user, "x"))
	userActs(s, Menu(user, "k"))
	require.Equal(t, []int{0, 0, 0, 0, 0, 0, 0, 0, 45047}, sends(t, s, user, 9))
	userActs(s, Menu(user, "k"))
	require.NoError(t, s.Advance(time.Hour))
	require.Equal(t, []int{45047}, sends(t, s, user, 1), "the menu's minute is over, the message's five are used")
}

func TestCustomMessagesAreChecked(t *testing.T) {
	s := quietSim(t, func(c *Config) { c.Limits.Message.Count = 100 })
	user := anyone(t, s)
	token := stable(t, s, false).Token
	userActs(s, Text(user, "x"))
	body := func(kind, object string) string {
		return `{"touser":"` + user + `","msgtype":"` + kind + `","` + kind + `":` + object + `}`
	}
	for _, c := range []struct {
		body string
		want int
	}{
		{textTo(user, strings.Repeat("a", 2048)), 0},
		{textTo(user, strings.Repeat("a", 2049)), 45002},
		{textTo(user, strings.Repeat("字", 683)), 45002},
		{textTo(user, ""), 44004},
		{textTo("oNobody", "x"), 40003},
		{textTo("", "x"), 40003},
		{body("image", `{"media_id":"M"}`), 0},
		{body("image", `{}`), 40007},
		{body("voice", `{"media_id":"M"}`), 0},
		{body("video", `{"media_id":"M","thumb_media_id":"T"}`), 0},
		{body("video", `{}`), 40007},
		{body("music", `{"thumb_media_id":"T"}`), 0},
		{body("music", `{}`), 40007},
		{body("news", `{"articles":[{"title":"t"}]}`), 0},
		{body("news", `{"articles":[{"title":"t"},{"title":"u"}]}`), 45008},
		{body("news", `{"articles":[]}`), 44003},
		{body("mpnews", `{"media_id":"M"}`), 0},
		{body("mpnewsarticle", `{"article_id":"A"}`), 0},
		{body("mpnewsarticle", `{}`), 47003},
		{body("msgmenu", `{"list":[{"id":"1","content":"yes"}]}`), 0},
		{body("msgmenu", `{"list":[]}`), 47003},
		{body("wxcard", `{"card_id":"C"}`), 0},
		{body("miniprogrampage", `{"title":"t","appid":"wx","pagepath":"p","thumb_media_id":"T"}`), 0},
		{body("miniprogrampage", `{"title":"t","pagepath":"p","thumb_media_id":"T"}`), 40166},
		{body("hologram", `{}`), 40008},
	} {
		require.Equal(t, c.want, post(t, s, PathCustomSend, token, c.body).Errcode, c.body[:min(len(c.body), 120)])
	}
	require.True(t, s.accounts[0].setRefuses(user, true))
	require.Equal(t, 48002, post(t, s, PathCustomSend, token, textTo(user, "x")).Errcode)
}

func TestTyping(t *testing.T) {
	s := quietSim(t, nil)
	user := anyone(t, s)
	token := stable(t, s, false).Token
	typing := func(command string) int {
		return post(t, s, PathCustomTyping, token, `{"touser":"`+user+`","command":"`+command+`"}`).Errcode
	}
	require.Equal(t, 45080, typing("Typing"))
	userActs(s, Text(user, "x"))
	require.Zero(t, typing("Typing"))
	require.Equal(t, 45081, typing("Typing"))
	require.Zero(t, typing("CancelTyping"))
	require.Zero(t, typing("Typing"))
	require.Equal(t, 45072, typing("Dancing"))
	require.NoError(t, s.Advance(31*time.Second))
	require.Equal(t, 45080, typing("Typing"))
}
