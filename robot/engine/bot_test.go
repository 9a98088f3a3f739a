package engine_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

func cutOver(t *testing.T, percent string) *engine.Rules {
	t.Helper()
	return rules(t, "  - name: old\n    match: {default: true}\n    bot: {name: old, percent: "+percent+"}\n"+
		"  - name: hours\n    match: {text: {equals: hours}}\n    answer: at_once\n    reply: {text: nine to five}\n"+
		"  - name: new\n    match: {default: true}\n    reply: {text: new}\n")
}

func of(openid, content string) *wire.Callback {
	c := text(content)
	c.OpenID = openid
	return c
}

func side(t *testing.T, r *engine.Rules, openid string) string {
	t.Helper()
	d, err := r.Decide(of(openid, "hello"))
	require.NoError(t, err)
	require.Equal(t, d.Rule, map[bool]string{true: "old", false: "new"}[d.Bot != ""])
	return d.Rule
}

// Each follower has one side; while the share falls nobody comes back to the
// bot, and about as many have it as the per cent says.
func TestFollowersKeepTheirSide(t *testing.T) {
	const followers = 4000
	was := map[string]string{}
	for _, percent := range []string{"100", "75", "50.5", "10", "0.25", "0"} {
		r, at := cutOver(t, percent), 0
		for i := range followers {
			id := fmt.Sprintf("oFollower-%d", i)
			now := side(t, r, id)
			require.Equal(t, now, side(t, r, id))
			require.False(t, was[id] == "new" && now == "old", "%s came back at %s", id, percent)
			if was[id] = now; now == "old" {
				at++
			}
		}
		var p float64
		_, err := fmt.Sscan(percent, &p)
		require.NoError(t, err)
		require.InDelta(t, p/100, float64(at)/followers, 0.03, percent)
	}
	all := cutOver(t, "50")
	other, err := all.WithShare("old", 0)
	require.NoError(t, err)
	require.Equal(t, "new", side(t, other, "oFollower-1"))
	again, err := other.WithShare("old", 50)
	require.NoError(t, err)
	for i := range followers {
		id := fmt.Sprintf("oFollower-%d", i)
		require.Equal(t, side(t, all, id), side(t, again, id), "the way back is the same")
	}
	_, err = all.WithShare("new", 10)
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	_, err = all.WithShare("old", 100.5)
	require.Equal(t, fault.Invalid, fault.KindOf(err))
}

// Rules that ask the same bot divide followers alike; another salt does not.
func TestSalt(t *testing.T) {
	r := func(salt string) *engine.Rules {
		return rules(t, "  - name: old\n    match: {message_type: event}\n    bot: {name: old, percent: 50}\n"+
			"  - name: old-text\n    match: {text: {any: true}}\n    bot: {name: old, percent: 50"+salt+"}\n")
	}
	same, differ := r(""), r(", salt: other")
	different := 0
	for i := range 200 {
		click := event("CLICK", "k")
		click.OpenID = fmt.Sprintf("oF-%d", i)
		byEvent, err := same.Decide(click)
		require.NoError(t, err)
		byText, err := same.Decide(of(click.OpenID, "x"))
		require.NoError(t, err)
		require.Equal(t, byEvent.Bot, byText.Bot)
		salted, err := differ.Decide(of(click.OpenID, "x"))
		require.NoError(t, err)
		if salted.Bot != byText.Bot {
			different++
		}
	}
	require.InDelta(t, 100, different, 40)
}

// The door decides with the same share: what is the bot's is not answered at
// once, whoever is on the new side gets the new side's answer there.
func TestTheDoorKnowsTheShare(t *testing.T) {
	r := cutOver(t, "50")
	_, passed, err := cutOver(t, "0.5").Explain(of("oF-1", "x"), engine.Situation{})
	require.NoError(t, err)
	require.Equal(t, "the follower is not among the 0.5 % that the bot old answers", passed[0].Why)
	sides := map[bool]int{}
	for i := range 100 {
		id := fmt.Sprintf("oF-%d", i)
		a, ok := r.AtOnce(of(id, "hours"))
		require.Equal(t, side(t, r, id) == "new", ok, "%+v", a)
		sides[ok]++
	}
	require.Len(t, sides, 2)
}

func TestBotDecisions(t *testing.T) {
	r := rules(t, "  - name: events\n    accounts: [demo]\n    match: {message_type: event}\n    bot: old\n  - name: rest\n    match: {default: true}\n    bot: {name: second, accounts: [demo]}\n    fallback: later\n")
	require.Equal(t, []string{"old", "second"}, r.Bots())
	require.Empty(t, r.Backends())
	d, err := r.Decide(event("unsubscribe", ""))
	require.NoError(t, err)
	require.Equal(t, "old", d.Bot)
	require.False(t, d.Answerable)
	require.Empty(t, d.Fallback, "nobody waits for an answer to this")
	d, err = r.Decide(text("x"))
	require.NoError(t, err)
	require.Equal(t, []any{"second", true, "later"}, []any{d.Bot, d.Answerable, d.Fallback})
	other := text("x")
	other.Account = "shop"
	d, err = r.Decide(other)
	require.NoError(t, err)
	require.Empty(t, d.Rule)
}

func TestBotProblems(t *testing.T) {
	known := engine.Known{Accounts: []string{"demo"}, Backends: []string{"core"}, Bots: []string{"old"}}
	for want, action := range map[string]string{
		`rules.yaml:5:10: rule "a": bot: there is no back end "core" of type wechat: configured are old`: "bot: core",
		"name is missing":              "bot: {percent: 5}",
		"use a name, not an address":   "bot: http://10.0.0.1/",
		"0 to 100 with at most two":    "bot: {name: old, percent: 101}",
		"at most two decimals":         "bot: {name: old, percent: 0.001}",
		"write how many per cent":      "bot: {name: old, percent: half}",
		`there is no account "nobody"`: "bot: {name: old, accounts: [nobody]}",
		`unknown key "share"`:          "bot: {name: old, share: 5}",
		"write exactly one of":         "bot: old\n    silence: true",
		"exactly one of reply":         "bot: old\n    reply: {text: x}",
		"at_once takes exactly":        "bot: old\n    answer: at_once",
		"up to 64 characters":          "bot: {name: old, salt: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}",
		"keep one of them":             "accounts: [demo]\n    bot: {name: old, accounts: [demo]}",
		`no back end "old"`:            "call: {backend: old, path: /x}",
	} {
		_, err := engine.Parse("rules.yaml", []byte("version: 1\nrules:\n  - name: a\n    match: {default: true}\n    "+action+"\n"), known)
		require.ErrorContains(t, err, want)
	}
	_, err := engine.Parse("rules.yaml", []byte("version: 1\nrules:\n  - name: a\n    match: {default: true}\n    bot: old\n  - name: b\n    match: {default: true}\n    silence: true\n"), known)
	require.ErrorContains(t, err, "it can never match", "behind a bot that has everybody")
}
