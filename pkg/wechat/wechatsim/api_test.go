package wechatsim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shape is a JSON value with its contents replaced by type names.
func shape(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			out[k] = shape(e)
		}
		return out
	case []any:
		if len(x) == 0 {
			return "list"
		}
		return []any{shape(x[0])}
	}
	return fmt.Sprintf("%T", v)
}

func shapeOf(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(raw, &v), string(raw))
	return shape(v)
}

func TestAnswersHaveTheShapeOfTheSamples(t *testing.T) {
	s := quietSim(t, func(c *Config) {
		c.Limits.UserPage = 3
		c.Limits.ClearsPerMonth = 1
		c.Accounts[0].CallbackURL = "http://127.0.0.1:1/"
		c.Receipts.Off = true
	})
	user, token := anyone(t, s), stable(t, s, false).Token
	userActs(s, Text(user, "x"))
	send := func(path, body string) string { return post(t, s, path, token, body).raw }
	get := func(target string) string {
		glue := "?"
		if strings.Contains(target, "?") {
			glue = "&"
		}
		return callAPI(t, s, http.MethodGet, target+glue+"access_token="+token, "").raw
	}
	last, err := s.Followers("", 5)
	require.NoError(t, err)
	for sample, raw := range map[string]string{
		"token.response":              plainTokenOf(t, s).raw,
		"stable_token.response":       stable(t, s, false).raw,
		"custom-send.response":        send(PathCustomSend, textTo(user, "x")),
		"template-send.response":      send(PathTemplateSend, templateTo(user, "T", "", someData)),
		"subscribe-bizsend.response":  send(PathBizSend, templateTo(user, "T", "", someData)),
		"quota-get.response":          send(PathQuotaGet, `{"cgi_path":"/cgi-bin/message/custom/send"}`),
		"get_api_domain_ip.response":  get(PathAPIDomainIP),
		"getcallbackip.response":      get(PathCallbackIP),
		"user-get-page1.response":     get(PathUserGet + "?next_openid="),
		"user-get-page2.response":     get(PathUserGet + "?next_openid=" + last[2]),
		"user-get-last.response":      get(PathUserGet + "?next_openid=" + last[4]),
		"callback-check.response":     send(PathCallbackCheck, `{"action":"all"}`),
		"error-40001":                 post(t, s, PathCustomSend, newToken(), "{}").raw,
		"error-40003":                 send(PathCustomSend, textTo("oNobody", "x")),
		"error-47001":                 send(PathCustomSend, "{"),
		"error-47003":                 send(PathTemplateSend, templateTo(user, "T", "", "{}")),
		"token.error-40125":           callAPI(t, s, http.MethodGet, PathToken+"?grant_type=client_credential&appid="+testAppID+"&secret=x", "").raw,
		"clear_quota.error-48006":     send(PathClearQuota, `{"appid":"`+testAppID+`"}`),
		"error-45011":                 refusalText(45011),
		"custom-send.response (kind)": send(PathCustomTyping, `{"touser":"`+user+`","command":"Typing"}`),
	} {
		name, _, _ := strings.Cut(sample, " ")
		want, err := os.ReadFile("../testdata/api/" + name + ".json")
		require.NoError(t, err)
		got := shapeOf(t, []byte(raw))
		require.Equal(t, withoutTags(shapeOf(t, want)), withoutTags(got), "%s: %s", sample, raw)
	}
	info := shapeOf(t, []byte(send(PathUserBatch, `{"user_list":[{"openid":"`+user+`"}]}`)))
	want, err := os.ReadFile("../testdata/api/user-info-batchget.response.json")
	require.NoError(t, err)
	require.Equal(t, withoutTags(shapeOf(t, want)), withoutTags(info))
}

func refusalText(code int) string { return string(encodeJSON(refusal(code).body())) }

// withoutTags ignores the tag list, which is empty here and filled in the sample.
func withoutTags(v any) any {
	if m, isMap := v.(map[string]any); isMap {
		m = maps.Clone(m)
		delete(m, "tagid_list")
		for k, e := range m {
			m[k] = withoutTags(e)
		}
		return m
	}
	if l, isList := v.([]any); isList {
		return []any{withoutTags(l[0])}
	}
	return v
}

func TestSampleRequestsAreAccepted(t *testing.T) {
	entries, err := os.ReadDir("../testdata/api")
	require.NoError(t, err)
	checked := 0
	for _, f := range entries {
		name := f.Name()
		path := map[bool]string{true: PathCustomSend}[strings.HasPrefix(name, "custom-send-")]
		switch name {
		case "template-send.request.json":
			path = PathTemplateSend
		case "subscribe-bizsend.request.json":
			path = PathBizSend
		}
		if path == "" || !strings.HasSuffix(name, ".request.json") {
			continue
		}
		s := quietSim(t, nil)
		s.accounts[0].ensure(sampleUser, s.clock.Now())
		userActs(s, Text(sampleUser, "x"))
		body, err := os.ReadFile("../testdata/api/" + name)
		require.NoError(t, err)
		a := post(t, s, path, stable(t, s, false).Token, string(body))
		require.Zero(t, a.Errcode, "%s: %s", name, a.Errmsg)
		checked++
	}
	require.GreaterOrEqual(t, checked, 14)
}

func TestBodiesMustBeJSONObjectsInUTF8(t *testing.T) {
	s := quietSim(t, func(c *Config) { c.Open.EscapeErrcode = 47002; c.Limits.BodyBytes = 4096 })
	user, token := anyone(t, s), stable(t, s, false).Token
	userActs(s, Text(user, "x"))
	for body, want := range map[string]int{
		"":                           44002,
		"x":                          47001,
		"[]":                         47001,
		"{} {}":                      47001,
		"\ufeff" + textTo(user, "x"): 47001,
		textTo(user, "x")[:20]:       47001,
		strings.Replace(textTo(user, "x"), "x", "\xff\xfe", 1): 47001,
		`{"touser":1}`: 47001,
		strings.Replace(textTo(user, "y"), `"y"`, `"\u4f60"`, 1):  47002,
		strings.Replace(textTo(user, "y"), `"y"`, `"\\u4f60"`, 1): 0,
	} {
		require.Equal(t, want, post(t, s, PathCustomSend, token, body).Errcode, "%q", body)
	}
	big := post(t, s, PathCustomSend, token, textTo(user, strings.Repeat("x", 5000)))
	require.Equal(t, http.StatusRequestEntityTooLarge, big.status)
}

func TestUnknownPathAndDeniedAPI(t *testing.T) {
	s := quietSim(t, func(c *Config) { c.Accounts[0].DeniedAPIs = []string{PathBizSend} })
	token := stable(t, s, false).Token
	require.Equal(t, 40066, post(t, s, "/cgi-bin/no/such", token, "{}").Errcode)
	require.Equal(t, 48001, post(t, s, PathBizSend, token, "{}").Errcode)
	v := s.Verdict(0)
	require.ElementsMatch(t, []string{PathStableToken, PathBizSend, unknownPath}, slices.Collect(maps.Keys(v.API)))
}

func TestDailyQuotaResetsAtMidnightInBeijing(t *testing.T) {
	s := quietSim(t, func(c *Config) {
		c.Limits.Daily = map[string]int{PathCustomSend: 2}
		c.Limits.ClearsPerMonth = 1
	})
	user, token := anyone(t, s), stable(t, s, false).Token
	userActs(s, Text(user, "x"))
	send := func() int { return post(t, s, PathCustomSend, token, textTo(user, "x")).Errcode }
	quota := func() (q quotaBody) {
		raw := post(t, s, PathQuotaGet, token, `{"cgi_path":"`+PathCustomSend+`"}`).raw
		require.NoError(t, json.Unmarshal([]byte(raw), &q))
		return q
	}
	require.Equal(t, []int{0, 0, 45009}, []int{send(), send(), send()})
	require.Equal(t, dailyQuota{2, 2, 0}, quota().Quota)
	clearing := func() int { return post(t, s, PathClearQuota, token, `{"appid":"`+testAppID+`"}`).Errcode }
	require.Zero(t, clearing())
	require.Equal(t, []int{0, 0, 45009}, []int{send(), send(), send()})
	require.Equal(t, 48006, clearing())
	require.NoError(t, s.Advance(14*time.Hour+59*time.Minute)) // 23:59 in Beijing
	token = stable(t, s, false).Token
	require.Equal(t, 45009, send())
	require.NoError(t, s.Advance(time.Minute))
	require.Zero(t, send())
	require.NoError(t, s.Advance(31*24*time.Hour))
	v2 := fmt.Sprintf(`{"appid":%q,"appsecret":%q}`, testAppID, testSecret)
	require.Zero(t, callAPI(t, s, http.MethodPost, PathClearQuotaV2, v2).Errcode)
	require.Equal(t, 48006, callAPI(t, s, http.MethodPost, PathClearQuotaV2, v2).Errcode)
}

func TestQuotaGetRefusesOddPaths(t *testing.T) {
	s := quietSim(t, nil)
	token := stable(t, s, false).Token
	for path, want := range map[string]int{"/sns/userinfo": 76022, "cgi-bin/token": 76021, "https://api.weixin.qq.com/cgi-bin/token": 76021} {
		require.Equal(t, want, post(t, s, PathQuotaGet, token, `{"cgi_path":"`+path+`"}`).Errcode)
	}
}

func TestFollowerPages(t *testing.T) {
	s := quietSim(t, func(c *Config) { c.Accounts[0].Followers = 25; c.Limits.UserPage = 10 })
	ids, err := s.Followers("", 0)
	require.NoError(t, err)
	userActs(s, Unsubscribe(ids[24]))
	token := stable(t, s, false).Token
	var all []string
	next, pages := "", 0
	for {
		var p userPage
		raw := callAPI(t, s, http.MethodGet, PathUserGet+"?access_token="+token+"&next_openid="+next, "").raw
		require.NoError(t, json.Unmarshal([]byte(raw), &p))
		require.Equal(t, 24, p.Total)
		if p.Count == 0 {
			require.NotContains(t, raw, `"data"`)
			break
		}
		require.Equal(t, p.Data.OpenID[p.Count-1], p.NextOpenID)
		all, next, pages = append(all, p.Data.OpenID...), p.NextOpenID, pages+1
	}
	require.Equal(t, 3, pages)
	require.Equal(t, ids[:24], all)
}

func TestAccountsAreApart(t *testing.T) {
	s := quietSim(t, func(c *Config) {
		c.Accounts = append(c.Accounts, Account{AppID: "wxother", Secret: "s2", GhID: "gh_other", Token: "t", Mode: ModePlain, Followers: 1})
	})
	ours, err := s.Followers(testAppID, 1)
	require.NoError(t, err)
	theirs, err := s.Followers("gh_other", 1)
	require.NoError(t, err)
	require.NotEqual(t, ours, theirs)
	userActs(s, Text(ours[0], "x"))
	other := callAPI(t, s, http.MethodGet, PathToken+"?grant_type=client_credential&appid=wxother&secret=s2", "").Token
	require.Equal(t, 40003, post(t, s, PathCustomSend, other, textTo(ours[0], "x")).Errcode)
	require.Equal(t, 40013, post(t, s, PathClearQuota, other, `{"appid":"`+testAppID+`"}`).Errcode)
}
