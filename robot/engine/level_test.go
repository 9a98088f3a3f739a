package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

const urgent = `version: 1
fallback: {zh: 系统繁忙, en: away}
busy: {zh: 人多, en: too many}
languages: {detect: {zh: han, en: latin}}
rules:
  - name: pay
    match: {menu_key: {equals: PAY}}
    level: vital
    call: {backend: core, path: /pay}
    reply: {text: paid}
  - name: bill
    match: {text: {prefix: bill}}
    max_age: 1m
    busy: {zh: 账单稍后, en: bill later}
    fallback: {zh: 账单没有, en: no bill}
    call: {backend: core, path: /bill}
    reply: {text: "{{ .Answer.text }}"}
  - name: sale
    match: {menu_key: {equals: SALE}}
    level: marketing
    max_age: 10s
    on_expired: silence
    on_busy: silence
    call: {backend: shop, path: /sale}
    reply: {text: x}
  - name: menu
    match: {menu_key: {any: true}}
    reply: {text: x}
  - name: gone
    match: {event: unsubscribe}
    call: {backend: core, path: /gone}
  - name: left
    match: {event: user_get_card}
    max_age: 5s
    call: {backend: core, path: /gone}
    reply: {text: "x"}
  - name: hush
    match: {event: VIEW}
    silence: true
  - name: hello
    match: {event: subscribe}
    reply: {text: x}
  - name: card
    match: {text: {equals: card}}
    level: vital
    dialogue: {steps: [{ask: {text: digits}, store: digits}]}
    call: {backend: core, path: /card}
  - name: rest
    match: {default: true}
    reply: {text: x}
`

func TestTermsOfRules(t *testing.T) {
	r, err := engine.Parse("rules.yaml", []byte(urgent), engine.Known{Backends: []string{"core", "shop"}})
	require.NoError(t, err)
	text := func(s string) *wire.Callback { return &wire.Callback{MsgType: "text", Content: s} }
	event := func(e, key string) *wire.Callback {
		return &wire.Callback{MsgType: "event", Event: e, EventKey: key}
	}
	usual := engine.Terms{Class: wire.PreferDuplicate, ValidFor: engine.DefaultValidFor}
	for name, c := range map[string]struct {
		of   *wire.Callback
		want engine.Terms
	}{
		"named":                   {event("CLICK", "PAY"), engine.Terms{Rule: "pay", Level: engine.Vital, Backend: "core", Expired: "系统繁忙", Busy: "人多"}},
		"a message asks":          {text("bill 7"), engine.Terms{Rule: "bill", Level: engine.Query, Backend: "core", MaxAge: time.Minute, Expired: "no bill", Busy: "bill later"}},
		"silence":                 {event("CLICK", "SALE"), engine.Terms{Rule: "sale", Level: engine.Marketing, Backend: "shop", MaxAge: 10 * time.Second}},
		"a menu button asks":      {event("CLICK", "POINTS"), engine.Terms{Rule: "menu", Level: engine.Query, Expired: "系统繁忙", Busy: "人多"}},
		"nobody would ask again":  {event("unsubscribe", ""), engine.Terms{Rule: "gone", Level: engine.Vital, Backend: "core"}},
		"nobody can be answered":  {event("user_get_card", ""), engine.Terms{Rule: "left", Level: engine.Event, Backend: "core", MaxAge: 5 * time.Second}},
		"nothing to do":           {event("VIEW", ""), engine.Terms{Rule: "hush", Idle: true, Level: engine.Event}},
		"no rule":                 {event("LOCATION", ""), engine.Terms{Idle: true, Level: engine.Event}},
		"an event":                {event("subscribe", ""), engine.Terms{Rule: "hello", Level: engine.Event, Expired: "系统繁忙", Busy: "人多"}},
		"a dialogue tells enough": {text("card"), engine.Terms{Rule: "card", Level: engine.Vital, Backend: "core", Expired: "away", Busy: "too many"}},
		"the rest":                {text("hi"), engine.Terms{Rule: "rest", Level: engine.Query, Expired: "away", Busy: "too many"}},
	} {
		c.want.Class, c.want.ValidFor = usual.Class, usual.ValidFor
		require.Equal(t, c.want, r.Terms(c.of), name)
	}
}

// What is written within a dialogue has the level of the rule that asked, and not
// of the rule that would take it otherwise.
func TestTermsWithinADialogue(t *testing.T) {
	r, err := engine.Parse("rules.yaml", []byte(urgent), engine.Known{})
	require.NoError(t, err)
	asked, err := r.Decide(&wire.Callback{MsgType: "text", Content: "card", ReceivedAt: 1000})
	require.NoError(t, err)
	require.NotNil(t, asked.State)
	answer := &wire.Callback{MsgType: "text", Content: "1234", ReceivedAt: 2000}
	require.Equal(t, "card", r.TermsIn(answer, engine.Situation{State: asked.State}).Rule)
	require.Equal(t, engine.Vital, r.TermsIn(answer, engine.Situation{State: asked.State}).Level)
	require.Equal(t, "rest", r.Terms(answer).Rule)
	answer.ReceivedAt += time.Hour.Milliseconds()
	require.Equal(t, "rest", r.TermsIn(answer, engine.Situation{State: asked.State}).Rule, "the dialogue has ended")
}

func TestLevelsAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ add, want string }{
		"level":             {"level: high", "rules.yaml:5:12: rule \"a\": level: \"high\" is none: write one of vital, query, event, marketing"},
		"max_age":           {"max_age: 1", "write a duration from 1s"},
		"never expires":     {"on_expired: silence", "add max_age"},
		"on_expired":        {"max_age: 5s\n    on_expired: nothing", "write fallback or silence"},
		"on_busy":           {"on_busy: later", "write text or silence"},
		"busy twice":        {"busy: x\n    on_busy: silence", "contradict each other"},
		"busy with a value": {"busy: '{{ .Content }}'", "remove {{ }}"},
	} {
		src := "version: 1\nrules:\n  - name: a\n    match: {default: true}\n    " + c.add + "\n    reply: {text: x}\n"
		_, err := engine.Parse("rules.yaml", []byte(src), engine.Known{})
		require.ErrorContains(t, err, c.want, name)
	}
}
