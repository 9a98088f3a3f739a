package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

const sampleRules = "../deployments/config/rules.sample.yaml"

// asked runs a command of `tidegate rules` and gives what it printed.
func asked(t *testing.T, f func(RulesOptions) error, file string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := f(RulesOptions{File: file, Out: &out})
	return out.String(), err
}

func try(t RulesTry) func(RulesOptions) error {
	return func(o RulesOptions) error {
		t.RulesOptions = o
		return t.Try()
	}
}

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestRulesCheckTellsEverythingWithItsPlace(t *testing.T) {
	out, err := asked(t, RulesCheck, sampleRules)
	require.NoError(t, err)
	require.Regexp(t, `is good: \d+ rules, version [0-9a-f]{12}\n  back ends: core .*\n  engines: assistant .*\n  dialogues: robots need`, out)

	var bad strings.Builder
	bad.WriteString("version: 1\nrules:\n")
	for i := range 60 {
		fmt.Fprintf(&bad, "  - {name: r%d, match: {default: true}, replay: {text: x}}\n", i)
	}
	out, err = asked(t, RulesCheck, written(t, bad.String()))
	require.ErrorIs(t, err, ErrReported)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Greater(t, len(lines), 100, "not only the first ones")
	require.Regexp(t, `rules\.yaml:3:\d+: rule`, lines[0])
	require.Contains(t, lines[len(lines)-1], "cannot be used")

	_, err = asked(t, RulesCheck, filepath.Join(t.TempDir(), "absent.yaml"))
	require.ErrorIs(t, err, ErrUsage)
}

func TestRulesCheckKnowsTheConfiguration(t *testing.T) {
	config := written(t, "robot: {backends: [{name: other, base_url: 'http://127.0.0.1:1', authorization: 'file:/not/for/me'}]}\naccounts: [{name: card}]\n")
	var out bytes.Buffer
	err := RulesCheck(RulesOptions{File: sampleRules, Source: Source{File: config}, Out: &out})
	require.ErrorIs(t, err, ErrReported)
	require.Contains(t, out.String(), `there is no back end "core": configured are other`)
	require.Contains(t, out.String(), `there is no engine "assistant"`)
}

func TestRulesTryShowsWhatAndWhy(t *testing.T) {
	out, err := asked(t, try(RulesTry{
		Account: "card", OpenID: "o1", At: "2026-10-10 09:30", Pause: 1e9, Texts: []string{"余额", "12", "1234", "美元", "hello"}, Answer: `{"balance":12}`,
	}), sampleRules)
	require.NoError(t, err)
	at := 0
	for _, want := range []string{
		`1. text "余额", account card, Sat 2026-10-10 09:30:00 CST`, "passed     opening-hours, line ", "the text does not match", "rule       balance, line ", "limit      5 per 10m0s", "step 1 is asked", "text: 请回复卡号后四位。",
		`2. text "12"`, "try 1 of 3", "请回复四位数字", `3. text "1234"`, `stored: digits="1234"`, "[usd] 美元",
		"4. ", `call       POST core /v1/balance {"currency":"usd","digits":"1234","openid":"o1"}`, "the dialogue is complete", "余额：12.00", "5. ", "rule       default", "收到：hello",
	} {
		i := strings.Index(out[at:], want)
		require.GreaterOrEqual(t, i, 0, "%q after %q in\n%s", want, out[:at], out)
		at += i
	}
}

func TestRulesTryOfTheDoorTheDeskAndOthers(t *testing.T) {
	for want, o := range map[string]RulesTry{
		"hand-over to a person":            {Texts: []string{"人工"}, At: "2026-10-10T09:30:00+08:00"},
		"handed over to a person: it ends": {Texts: []string{"余额", "人工"}, At: "2026-10-10 09:30"},
		"Our staff are here":               {Texts: []string{"agent please"}, At: "2026-10-10 19:30"},
		"not made; --answer":               {Event: "CLICK", EventKey: "BILL"},
		"fallback   if it fails: 账单":       {Event: "CLICK", EventKey: "BILL"},
		"engine     assistant is asked":    {Texts: []string{"助手 你好"}},
		"image: MEDIA_ID":                  {Type: "image"},
		"请点击底部菜单":                          {Texts: []string{"查询账单 / My bill"}, MenuItem: "bill"},
		"reply      none":                  {Event: "VIEW"},
		"more; --all lists them":           {Texts: []string{"x"}},
		"none matches: silence":            {Event: "user_info_modified"},
	} {
		o.Account, o.OpenID = "card", "o1"
		out, err := asked(t, try(o), sampleRules)
		require.NoError(t, err)
		require.Contains(t, out, want)
	}
	out, err := asked(t, try(RulesTry{Event: "CLICK", EventKey: "BILL", Answer: `{"month":"9"}`, Account: "card"}), sampleRules)
	require.ErrorIs(t, err, ErrReported, "a reply that cannot be rendered")
	require.Contains(t, out, "a field that the template uses is missing")
	require.Contains(t, out, "fallback text: 账单")
	for _, o := range []RulesTry{{}, {Texts: []string{"x"}, At: "tomorrow"}, {Texts: []string{"x"}, Answer: "{"}} {
		_, err := asked(t, try(o), sampleRules)
		require.ErrorIs(t, err, ErrUsage)
	}
}

// What works after a broken change, and for how long, can be seen.
func TestTheRulesAtWorkAreShown(t *testing.T) {
	g := newGate(t)
	view := func() rulesAtWork {
		rec := httptest.NewRecorder()
		g.e.rules.ServeHTTP(rec, httptest.NewRequest("GET", "/ops/v1/rules", nil))
		var answer struct{ Roles []rulesAtWork }
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &answer))
		require.Len(t, answer.Roles, 1)
		return answer.Roles[0]
	}
	first := view()
	require.Equal(t, RoleProxy, first.Role)
	require.Equal(t, 1, first.Rules)
	require.Len(t, first.Version, 12)
	require.Nil(t, first.Refused)

	g.setRules(strings.Replace(fmt.Sprintf(gateRules, "never"), "match", "mach", 1))
	g.reload()
	broken := view()
	require.Equal(t, first.Version, broken.Version)
	require.Contains(t, broken.Refused.Error, "rules.yaml:4:5")
	require.InDelta(t, 1, testutil.ToFloat64(g.e.rules.refused), 0)
	require.Contains(t, g.hours(1), "nine to five")

	g.setRules(fmt.Sprintf(gateRules, "ten to six"))
	g.reload()
	mended := view()
	require.NotEqual(t, first.Version, mended.Version)
	require.Nil(t, mended.Refused)
	require.InDelta(t, 0, testutil.ToFloat64(g.e.rules.refused), 0)
	require.Equal(t, 1, testutil.CollectAndCount(g.e.rules.info), "one version, not every one that ever was")
	require.Contains(t, g.hours(2), "ten to six")
}

// Rules with dialogues need a key; a robot refuses them as a change, and at its
// start, and a door takes them.
func TestDialoguesWithoutAKeyAreRefusedAsAChange(t *testing.T) {
	rules := written(t, "version: 1\nrules:\n  - name: ask\n    match: {text: {equals: ask}}\n    dialogue: {steps: [{ask: {text: what}, store: it}]}\n    reply: {text: \"{{ .Vars.it }}\"}\n")
	c := DefaultConfig()
	_, err := rulesSource{path: rules}.load(c, RoleRobot)
	require.ErrorContains(t, err, "robot.dialogue.key")
	_, err = rulesSource{path: rules}.load(c, RoleProxy)
	require.NoError(t, err)
	c.Robot.Dialogue.Key = "a key of some length"
	_, err = rulesSource{path: rules}.load(c, RoleRobot)
	require.NoError(t, err)
}
