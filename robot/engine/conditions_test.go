package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

func file(t *testing.T, src string) *engine.Rules {
	t.Helper()
	r, err := engine.Parse("rules.yaml", []byte("version: 1\n"+src), engine.Known{})
	require.NoError(t, err)
	return r
}

const officeRules = `
hours:
  office:
    week: {mon-fri: "09:00-12:00, 13:30-18:00", sat: "22:00-02:00"}
    holidays: [2026-10-01..2026-10-07]
    workdays: [2026-10-07, 2026-10-10]
  london: {zone: Europe/London, week: {sun-sat: "09:00-17:00"}}
rules:
  - {name: closed, match: {text: {equals: desk}}, outside: office, answer: at_once, reply: {text: closed}}
  - {name: desk, match: {text: {equals: desk}}, during: office, answer: at_once, hand_over: true}
  - {name: tea, match: {text: {equals: tea}}, during: [london, office], reply: {text: tea}}
  - {name: default, match: {default: true}, reply: {text: x}}
`

func TestHours(t *testing.T) {
	r := file(t, officeRules)
	at := func(word, moment string) string {
		when, err := time.Parse(time.RFC3339, moment)
		require.NoError(t, err)
		c := text(word)
		c.ReceivedAt = when.UnixMilli()
		d, err := r.Decide(c)
		require.NoError(t, err)
		if a, ok := r.AtOnce(c); ok {
			require.Equal(t, d.Rule, a.Rule, "door and robot agree")
		}
		return d.Rule
	}
	for moment, rule := range map[string]string{
		"2026-09-28T08:59:59+08:00": "closed", // Monday
		"2026-09-28T09:00:00+08:00": "desk",
		"2026-09-28T11:59:59+08:00": "desk",
		"2026-09-28T12:00:00+08:00": "closed",
		"2026-09-28T01:00:00Z":      "desk",   // nine in Shanghai
		"2026-10-01T10:00:00+08:00": "closed", // Thursday, a holiday
		"2026-10-07T10:00:00+08:00": "desk",   // a workday among the holidays
		"2026-10-10T13:30:00+08:00": "desk",   // Saturday, worked with Monday's hours
		"2026-10-10T23:00:00+08:00": "closed", // and not with Saturday's
		"2026-10-17T23:00:00+08:00": "desk",   // an ordinary Saturday night …
		"2026-10-18T01:59:00+08:00": "desk",   // … reaches into Sunday
		"2026-10-18T02:00:00+08:00": "closed",
		"2026-10-11T01:00:00+08:00": "closed", // after the worked Saturday nobody stays on
	} {
		require.Equal(t, rule, at("desk", moment), moment)
	}
	require.Equal(t, "tea", at("tea", "2026-10-01T16:30:00+01:00"), "one of the two is open")
	require.Equal(t, "default", at("tea", "2026-10-01T17:30:00+01:00"))
	require.Equal(t, "tea", at("tea", "2026-12-01T16:30:00Z"), "London without summer time")
	c := text("desk")
	c.CreateTime = time.Date(2026, 9, 28, 2, 0, 0, 0, time.UTC).Unix()
	d, err := r.Decide(c)
	require.NoError(t, err)
	require.Equal(t, "desk", d.Rule, "WeChat's time where ours is missing")
}

const twoLanguages = `
languages:
  default: zh
  accounts: {overseas: en}
  detect: {zh: han, en: latin}
fallback: {zh: 忙, en: busy}
rules:
  - {name: now, match: {text: {equals: [now, 现在]}}, answer: at_once, reply: {text: {zh: 立即, en: at once}}}
  - name: ask
    match: {text: {equals: [ask, 问]}}
    dialogue: {steps: [{ask: {text: {zh: 几月, en: month}}, store: month, regexp: '\d+'}]}
    reply: {text: {zh: "{{ .Vars.month }} 月", en: "month {{ .Vars.month }}"}}
  - name: menu
    match: {event: CLICK}
    reply:
      - menu: {head: {zh: 选, en: choose}, items: [{id: a, text: {zh: 甲, en: A}}]}
      - news: {title: {zh: 题, en: title}, url: {zh: "https://zh.example", en: "https://en.example"}}
      - image: {zh: Z, en: E}
      - text: {zh: 文, de: Text}
`

func TestTextsInTwoLanguages(t *testing.T) {
	r := file(t, twoLanguages)
	in := func(account string, c *wire.Callback) engine.Decision {
		c.Account = account
		d, err := r.Decide(c)
		require.NoError(t, err)
		return d
	}
	for account, want := range map[string][]string{"demo": {"选", "甲", "题", "https://zh.example", "Z", "文", "忙"}, "overseas": {"choose", "A", "title", "https://en.example", "E", "文", "busy"}} {
		d := in(account, event("CLICK", "A"))
		require.Equal(t, want, []string{d.Replies[0].Menu.Head, d.Replies[0].Menu.Items[0].Text, d.Replies[1].News.Title, d.Replies[1].News.URL, d.Replies[2].MediaID, d.Replies[3].Text, d.Fallback}, account)
	}
	for word, want := range map[string]string{"now": "at once", "现在": "立即"} {
		a, ok := r.AtOnce(text(word))
		require.True(t, ok)
		require.Equal(t, want, a.Text)
	}
	require.Equal(t, "忙", r.Fallback())
	broken := text("hello")
	broken.Quarantined = "two openids"
	a, _ := r.AtOnce(broken)
	require.Equal(t, "busy", a.Text)
	d, err := r.DecideIn(text("now"), engine.Situation{Language: "zh"})
	require.NoError(t, err)
	require.Equal(t, "立即", d.Replies[0].Text, "what is known of the follower counts more than letters")

	k := &talk{t: t, rules: r, at: began}
	require.Equal(t, "month", k.text("ask"))
	require.Equal(t, "month 9", k.text("9"), "a dialogue keeps its language")
	k = &talk{t: t, rules: r, at: began}
	k.text("ask")
	require.Equal(t, "Cancelled.", k.text("cancel"))
}

func TestLimits(t *testing.T) {
	r := rules(t, `
  - name: dear
    match: {text: {equals: dear}}
    limit: {rate: 2 per 10m, instead: {text: enough}, redis_away: deny}
    call: {backend: core, path: /x}
  - {name: short, match: {text: {equals: short}}, limit: 1 per 24h, fallback: own, reply: {text: x}}
  - {name: quiet, match: {text: {equals: quiet}}, limit: {rate: 1 per 1s, instead: silence}, reply: {text: x}}
  - name: asked
    match: {text: {equals: asked}}
    limit: 1 per 1m
    dialogue: {steps: [{ask: {text: q}, store: a}]}
    reply: {text: "{{ .Vars.a }}"}
`)
	d, err := r.Decide(text("dear"))
	require.NoError(t, err)
	require.Equal(t, &engine.Limit{Rule: "dear", Times: 2, Per: 10 * time.Minute, DenyBlind: true}, d.Limit)
	require.NoError(t, d.Refuse())
	require.Nil(t, d.Call)
	require.Equal(t, "enough", d.Replies[0].Text)
	for word, want := range map[string]string{"short": "own", "asked": "busy"} {
		d, err = r.Decide(text(word))
		require.NoError(t, err)
		require.NoError(t, d.Refuse())
		require.Equal(t, want, d.Replies[0].Text)
		require.False(t, d.Moves, "no dialogue begins")
	}
	d, err = r.Decide(text("quiet"))
	require.NoError(t, err)
	require.NoError(t, d.Refuse())
	require.Empty(t, d.Replies)

	k := &talk{t: t, rules: r, at: began}
	k.text("asked")
	require.NotNil(t, k.last.Limit)
	require.Equal(t, "x", k.text("x"))
	require.Nil(t, k.last.Limit, "the answers of a dialogue that has begun do not count")
}

func TestAnExternalEngineDecides(t *testing.T) {
	r := rules(t, `
  - {name: smart, match: {text: {prefix: ai}}, engine: {name: smart, stay: 5m, hand_over: {text: send desk}}, fallback: away}
  - {name: plain, match: {default: true}, engine: smart}
`)
	require.Equal(t, []string{"smart"}, r.Engines())
	k := &talk{t: t, rules: r, at: began}
	k.text("ai hello")
	require.Equal(t, "smart", k.last.Ask.Engine)
	require.False(t, k.last.Ask.Inside)
	one := []wire.Content{{Type: "text", Text: "hi"}}
	require.NoError(t, k.last.Take(engine.Said{Replies: one, Dialogue: engine.DialogueStay, Vars: map[string]string{"n": "1"}}))
	require.True(t, k.last.Moves)
	k.state = k.last.State

	k.text("more")
	require.True(t, k.last.Ask.Inside)
	require.Equal(t, "smart", k.last.Rule)
	require.Equal(t, "1", k.last.Ask.Vars["n"])
	require.NoError(t, k.last.Take(engine.Said{}))
	require.Equal(t, "1", k.last.State.Vars["n"], "the engine said nothing about it")
	kept := k.last
	require.NoError(t, kept.Take(engine.Said{Dialogue: engine.DialogueEnd}))
	require.True(t, kept.Moves)
	require.Nil(t, kept.State)
	require.NoError(t, kept.Take(engine.Said{HandOver: true}))
	require.Equal(t, "send desk", kept.Replies[0].Text)
	require.Nil(t, kept.State)

	k.state = k.last.State
	k.at = k.at.Add(6 * time.Minute)
	k.text("late")
	require.Equal(t, "plain", k.last.Rule)
	require.False(t, k.last.Ask.Inside)
	require.ErrorContains(t, k.last.Take(engine.Said{Dialogue: engine.DialogueStay}), "engine: stay")
	require.NoError(t, k.last.Take(engine.Said{HandOver: true}))
	require.NotEmpty(t, k.last.NotHere)
	require.Error(t, k.last.Take(engine.Said{Replies: make([]wire.Content, 6)}))
}

func TestContentFromOutsideIsBounded(t *testing.T) {
	good := wire.Content{Type: "text", Text: "a <a href='https://x.example'>b</a>\x00\u202e"}
	require.NoError(t, engine.CheckContent(&good))
	require.Equal(t, "a ＜a href='https://x.example'>b＜/a>", good.Text)
	long := strings.Repeat("x", engine.MaxText+1)
	for name, c := range map[string]wire.Content{
		"nothing": {}, "unknown type": {Type: "video", MediaID: "x"}, "two": {Type: "text", Text: "x", MediaID: "y"}, "other field": {Type: "text", MediaID: "y"},
		"long": {Type: "text", Text: long}, "blank": {Type: "text", Text: " \x00"}, "media": {Type: "image", MediaID: "a b"},
		"news without title": {Type: "news", News: &wire.Article{URL: "https://x.example"}}, "javascript": {Type: "news", News: &wire.Article{Title: "x", URL: "javascript:x"}},
		"picture": {Type: "news", News: &wire.Article{Title: "x", URL: "https://x.example", PicURL: "//x"}}, "long description": {Type: "news", News: &wire.Article{Title: "x", Description: long, URL: "https://x.example"}},
		"no items": {Type: "msgmenu", Menu: &wire.Menu{Head: "x"}}, "item id": {Type: "msgmenu", Menu: &wire.Menu{Items: []wire.MenuItem{{ID: "a b", Text: "x"}}}},
		"item twice": {Type: "msgmenu", Menu: &wire.Menu{Items: []wire.MenuItem{{ID: "a", Text: "x"}, {ID: "a", Text: "x"}}}}, "empty item": {Type: "msgmenu", Menu: &wire.Menu{Items: []wire.MenuItem{{ID: "a"}}}},
	} {
		require.Error(t, engine.CheckContent(&c), name)
	}
	for _, c := range []wire.Content{
		{Type: "image", MediaID: "x"}, {Type: "news", News: &wire.Article{Title: "x", URL: "https://x.example"}}, {Type: "msgmenu", Menu: &wire.Menu{Items: []wire.MenuItem{{ID: "a", Text: "x"}}}},
	} {
		require.NoError(t, engine.CheckContent(&c))
	}
}

func TestExplainSaysWhyRulesWerePassedOver(t *testing.T) {
	r := file(t, strings.Replace(officeRules, "rules:\n", "rules:\n  - {name: elsewhere, accounts: other, match: {default: true}, silence: true}\n  - {name: press, match: {menu_key: {equals: A}}, silence: true}\n", 1))
	c := text("tea")
	c.ReceivedAt = time.Date(2026, 10, 1, 17, 30, 0, 0, time.UTC).UnixMilli()
	d, passed, err := r.Explain(c, engine.Situation{})
	require.NoError(t, err)
	require.Equal(t, "default", d.Rule)
	require.Equal(t, []engine.Passed{
		{Rule: "elsewhere", Line: 10, Why: "it is for other accounts"},
		{Rule: "press", Line: 11, Why: "there is no menu_key"},
		{Rule: "closed", Line: 12, Why: "the text does not match"},
		{Rule: "desk", Line: 13, Why: "the text does not match"},
		{Rule: "tea", Line: 14, Why: "outside the hours london, office at Thu 2026-10-01 18:30 BST"},
	}, passed)
	require.Equal(t, 15, d.Line())
}

func TestVersionTellsFilesApart(t *testing.T) {
	a, b := file(t, officeRules), file(t, officeRules+"# a comment\n")
	require.Len(t, a.Version(), 12)
	require.NotEqual(t, a.Version(), b.Version())
	require.Equal(t, a.Version(), file(t, officeRules).Version())
}
