package proxy

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/wire"
)

func TestTheFirstRuleThatFitsDecides(t *testing.T) {
	long, off, short := 30*time.Second, time.Duration(0), 2*time.Second
	c := DefaultConfig()
	c.Repeats.Rules = []RepeatRule{
		{Types: []string{"CLICK", "VIEW"}, Key: "loan_*", Window: &long},
		{Key: "balance", Window: &off}, // of every default type
		{Types: []string{"text"}, Key: "*查询*", Window: &short},
		{Types: []string{"CLICK"}},
		{Types: []string{"CLICK"}, Window: &long}, // never reached
	}
	require.NoError(t, c.Validate())
	table := c.Repeats.compile()
	for _, x := range []struct {
		what string
		c    wire.Callback
		want time.Duration // 0: never a repeat
	}{
		{"key of the first rule", wire.Callback{MsgType: "event", Event: "CLICK", EventKey: "loan_apply"}, long},
		{"its other type", wire.Callback{MsgType: "event", Event: "VIEW", EventKey: "loan_"}, long},
		{"switched off for one key", wire.Callback{MsgType: "event", Event: "CLICK", EventKey: "balance"}, 0},
		{"the window of the section", wire.Callback{MsgType: "event", Event: "CLICK", EventKey: "balance2"}, 10 * time.Second},
		{"no rule for the rest of VIEW", wire.Callback{MsgType: "event", Event: "VIEW", EventKey: "https://x/"}, 0},
		{"text where a rule names it", wire.Callback{MsgType: "text", Content: "我要查询余额"}, short},
		{"other text", wire.Callback{MsgType: "text", Content: "是"}, 0},
		{"text is no event without a key", wire.Callback{MsgType: "event", Event: "text", EventKey: "x"}, 0},
		{"pictures never", wire.Callback{MsgType: "image"}, 0},
	} {
		rule := table.rule(&x.c)
		if x.want == 0 {
			require.Nil(t, rule, x.what)
			continue
		}
		require.NotNil(t, rule, x.what)
		require.Equal(t, x.want, rule.window, x.what)
	}
	require.Equal(t, "same action within 30s, by proxy.repeats.rules[0] with key loan_*", table.rule(&wire.Callback{Event: "VIEW", EventKey: "loan_1"}).reason)
}

func TestTheDefaultIsMenuPressesAndNeverText(t *testing.T) {
	table := DefaultConfig().Repeats.compile()
	for _, e := range defaultRepeatTypes() {
		require.Equal(t, 10*time.Second, table.rule(&wire.Callback{MsgType: "event", Event: e, EventKey: "k"}).window, e)
	}
	for _, c := range []wire.Callback{{MsgType: "text", Content: "yes"}, {MsgType: "event", Event: "subscribe"}, {MsgType: "event", Event: "LOCATION"}, {MsgType: "voice"}} {
		require.Nil(t, table.rule(&c), "%+v", c)
	}
}

// A rule with a slip of the pen is not taken without a word.
func TestRulesOfNonsense(t *testing.T) {
	c := DefaultConfig()
	c.Repeats.Rules = []RepeatRule{{Types: []string{"CLICK"}}, {}}
	require.ErrorContains(t, c.Validate(), "proxy.repeats.rules[1]: the rule is empty: give it types, a key or a window")
	c.Repeats.Rules = []RepeatRule{{Types: []string{"text", "CLICK"}}, {Types: []string{"VEIW", "scancode_wait"}, Key: "a*"}}
	require.NoError(t, c.Validate(), "WeChat may have such events")
	require.Equal(t, []string{
		`proxy.repeats.rules[1].types: "VEIW" is no event that this program knows; the nearest is VIEW`,
		`proxy.repeats.rules[1].types: "scancode_wait" is no event that this program knows; the nearest is scancode_waitmsg`,
	}, c.Repeats.Warnings())
	require.Empty(t, DefaultConfig().Repeats.Warnings())
}

// A star stands for anything, and nothing else is special: a regular
// expression made of the same pieces must agree.
func TestPatternsOfKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.StringOfN(rapid.SampledFrom([]rune("ab?[.*/")), 0, 8, -1)
		p, s := some.Draw(t, "pattern"), some.Draw(t, "key")
		want := p == "" || regexp.MustCompile("^"+strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*")+"$").MatchString(s)
		if got := newPattern(p).fits(s); got != want {
			t.Fatalf("pattern %q and key %q: %v", p, s, got)
		}
	})
}

func TestWhatWasScannedBelongsToTheAction(t *testing.T) {
	scan := func(result string) string {
		return action(&wire.Callback{MsgType: "event", Event: "scancode_waitmsg", EventKey: "pay", Fields: map[string]string{"ScanCodeInfo.ScanResult": result}})
	}
	one, again, two := scan("1"), scan("1"), scan("2")
	require.Equal(t, one, again)
	require.NotEqual(t, one, two)
	require.NotContains(t, scan("https://secret"), "secret")
	require.NotContains(t, action(&wire.Callback{MsgType: "text", Content: "13800138000"}), "138001")
	require.Equal(t, "CLICK:k", action(&wire.Callback{MsgType: "event", Event: "CLICK", EventKey: "k"}))
}

func BenchmarkRuleOfAClick(b *testing.B) {
	table := DefaultConfig().Repeats.compile()
	c := &wire.Callback{MsgType: "event", Event: "CLICK", EventKey: "balance"}
	b.ReportAllocs()
	for b.Loop() {
		if table.rule(c) == nil {
			b.Fatal("no rule")
		}
	}
}
