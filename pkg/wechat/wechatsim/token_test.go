package wechatsim

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// handClock stands still until it is moved.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time          { return c.now }
func (c *handClock) Advance(d time.Duration) { c.now = c.now.Add(d) }

// quietSim neither listens nor pushes; its clock is moved with Advance.
func quietSim(t *testing.T, change func(*Config)) *Sim {
	t.Helper()
	cfg := testConfig(ModePlain)
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, zap.NewNop(), WithClock(&handClock{time.Date(2030, 1, 1, 9, 0, 0, 0, beijing)}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func plainTokenOf(t *testing.T, s *Sim) answerOf {
	t.Helper()
	return callAPI(t, s, http.MethodGet, PathToken+"?grant_type=client_credential&appid="+testAppID+"&secret="+testSecret, "")
}

// works returns the errcode of a harmless call with the token.
func works(t *testing.T, s *Sim, token string) int {
	t.Helper()
	return callAPI(t, s, http.MethodGet, PathCallbackIP+"?access_token="+token, "").Errcode
}

func TestPlainTokenKeepsTwoLiveForFiveMinutes(t *testing.T) {
	s := quietSim(t, nil)
	first := plainTokenOf(t, s)
	require.Equal(t, 7200, first.Expires)
	second := plainTokenOf(t, s)
	require.NotEqual(t, first.Token, second.Token)
	require.Zero(t, works(t, s, first.Token))
	require.Zero(t, works(t, s, second.Token))
	third := plainTokenOf(t, s)
	require.Equal(t, 40001, works(t, s, first.Token), "two live, never three")
	require.Zero(t, works(t, s, second.Token))
	require.NoError(t, s.Advance(5*time.Minute))
	require.Equal(t, 40001, works(t, s, second.Token))
	require.Zero(t, works(t, s, third.Token))
	require.NoError(t, s.Advance(2*time.Hour))
	require.Equal(t, 42001, works(t, s, third.Token))
}

func TestStableTokenShowsItsRemainingLife(t *testing.T) {
	s := quietSim(t, nil)
	first := stable(t, s, false)
	require.Equal(t, 7200, first.Expires)
	require.NoError(t, s.Advance(6855*time.Second))
	again := stable(t, s, false)
	require.Equal(t, first.Token, again.Token)
	require.Equal(t, 345, again.Expires)
	require.NoError(t, s.Advance(60*time.Second))
	renewed := stable(t, s, false)
	require.NotEqual(t, first.Token, renewed.Token)
	require.Equal(t, 7200, renewed.Expires)
	require.Zero(t, works(t, s, first.Token), "old and new live together")
	require.NoError(t, s.Advance(285*time.Second))
	require.Equal(t, 42001, works(t, s, first.Token))
	require.Zero(t, works(t, s, renewed.Token))
}

func TestForcedRefreshIsRationed(t *testing.T) {
	s := quietSim(t, nil)
	first := stable(t, s, false)
	forced := stable(t, s, true)
	require.NotEqual(t, first.Token, forced.Token)
	require.Equal(t, 40001, works(t, s, first.Token), "a forced refresh ends the old one at once")
	require.NoError(t, s.Advance(29*time.Second))
	require.Equal(t, forced.Token, stable(t, s, true).Token, "less than 30 s apart does nothing")
	seen := map[string]bool{forced.Token: true}
	for range 25 {
		require.NoError(t, s.Advance(30*time.Second))
		seen[stable(t, s, true).Token] = true
	}
	require.Len(t, seen, 20, "twenty a day")
	require.NoError(t, s.Advance(24*time.Hour))
	require.False(t, seen[stable(t, s, true).Token])
}

func TestTheTwoEndpointsDoNotEndEachOthersTokens(t *testing.T) {
	s := quietSim(t, nil)
	a, b := stable(t, s, false), plainTokenOf(t, s)
	require.NotEqual(t, a.Token, b.Token)
	stable(t, s, true)
	require.Zero(t, works(t, s, b.Token))
}

func TestTokenErrors(t *testing.T) {
	s := quietSim(t, func(c *Config) {
		c.Accounts = append(c.Accounts, Account{AppID: "wxclosed", Secret: "s", GhID: "gh_closed", Token: "t", Mode: ModePlain, IPWhitelist: []string{"203.0.113.1"}})
	})
	get := func(q string) int { return callAPI(t, s, http.MethodGet, PathToken+q, "").Errcode }
	require.Equal(t, 40002, get("?grant_type=x&appid=a&secret=b"))
	require.Equal(t, 41002, get("?grant_type=client_credential&secret=b"))
	require.Equal(t, 41004, get("?grant_type=client_credential&appid=a"))
	require.Equal(t, 40013, get("?grant_type=client_credential&appid=wxnone&secret=b"))
	require.Equal(t, 40125, get("?grant_type=client_credential&appid="+testAppID+"&secret=b"))
	require.Equal(t, 43002, callAPI(t, s, http.MethodGet, PathStableToken, "").Errcode)
	require.Equal(t, 43001, callAPI(t, s, http.MethodPost, PathToken, "{}").Errcode)
	blocked := callAPI(t, s, http.MethodGet, PathToken+"?grant_type=client_credential&appid=wxclosed&secret=s", "")
	require.Equal(t, 40164, blocked.Errcode)
	require.Contains(t, blocked.Errmsg, "invalid ip 192.0.2.1 ipv6 ::ffff:192.0.2.1, not in whitelist rid: ")
	require.Equal(t, 41001, works(t, s, ""))
	require.Equal(t, 40014, works(t, s, "nonsense"))
	require.Equal(t, 40001, works(t, s, newToken()))
}

func TestTokenQuotas(t *testing.T) {
	s := quietSim(t, func(c *Config) {
		c.Limits.Daily = map[string]int{PathToken: 3}
		c.Limits.PerMinute = map[string]int{PathStableToken: 2}
	})
	for range 3 {
		require.Zero(t, plainTokenOf(t, s).Errcode)
	}
	require.Equal(t, 45009, plainTokenOf(t, s).Errcode)
	stable(t, s, false)
	stable(t, s, false)
	require.Equal(t, 45011, stable(t, s, false).Errcode)
	require.NoError(t, s.Advance(time.Minute))
	require.Zero(t, stable(t, s, false).Errcode)
}
