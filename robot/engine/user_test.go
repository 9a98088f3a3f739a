package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

const personal = `version: 1
rules:
  - name: bill
    match: {text: {equals: bill}}
    require: bound
    unbound: {text: "bind first: https://bank.example/bind"}
    call: {backend: core, path: "/users/{{ .User }}/bill"}
    reply: {text: "{{ .Answer.text }}"}
  - name: again
    match: {text: {equals: again}}
    reply: {text: "{{ if .Last }}{{ with index .Last 0 }}{{ .What }} at {{ date \"15:04\" .At }}: {{ .Said }}{{ end }}{{ else }}nothing yet{{ end }}"}
  - name: hello
    match: {default: true}
    reply: {text: "hello {{ if .User }}{{ .User }}{{ else }}stranger{{ end }}"}
  - name: plain
    match: {event: LOCATION}
    silence: true
`

func TestRulesKnowTheFollower(t *testing.T) {
	r, err := engine.Parse("rules.yaml", []byte(personal), engine.Known{})
	require.NoError(t, err)
	say := func(text string) *wire.Callback { return &wire.Callback{MsgType: "text", Content: text} }
	require.Equal(t, engine.Wants{User: true, Last: true}, r.Wants())
	require.Equal(t, engine.Wants{User: true}, r.Terms(say("bill")).Wants)
	require.Equal(t, engine.Wants{Last: true}, r.Terms(say("again")).Wants)
	require.Equal(t, engine.Wants{User: true}, r.Terms(say("hi")).Wants)
	require.Equal(t, engine.Wants{}, r.Terms(&wire.Callback{MsgType: "event", Event: "LOCATION"}).Wants)

	d, err := r.DecideIn(say("bill"), engine.Situation{User: "77 8"})
	require.NoError(t, err)
	require.Equal(t, "/users/77%208/bill", d.Call.Path)
	d, err = r.DecideIn(say("bill"), engine.Situation{})
	require.NoError(t, err)
	require.Nil(t, d.Call)
	require.Equal(t, "bind first: https://bank.example/bind", d.Replies[0].Text)
	require.Equal(t, []string{"the follower is not bound"}, d.Notes)

	last := []engine.Action{{At: 1893456000, What: "bill", Said: "77 CNY"}, {What: "hi"}}
	d, err = r.DecideIn(say("again"), engine.Situation{Last: last})
	require.NoError(t, err)
	require.Equal(t, "bill at 08:00: 77 CNY", d.Replies[0].Text)
	d, err = r.Decide(say("again"))
	require.NoError(t, err)
	require.Equal(t, "nothing yet", d.Replies[0].Text)
	d, err = r.Decide(say("hi"))
	require.NoError(t, err)
	require.Equal(t, "hello stranger", d.Replies[0].Text)
}

func TestRequirementsAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ add, want string }{
		"what":        {"require: friend\n    unbound: {text: x}\n    reply: {text: x}", "write bound"},
		"no word":     {"require: bound\n    reply: {text: x}", "say in unbound"},
		"never used":  {"unbound: {text: x}\n    reply: {text: x}", "never used"},
		"silence":     {"require: bound\n    unbound: {text: x}\n    silence: true", "it goes with reply"},
		"at the door": {"require: bound\n    unbound: {text: x}\n    answer: at_once\n    reply: {text: x}", "the door does not know"},
	} {
		src := "version: 1\nrules:\n  - name: a\n    match: {default: true}\n    " + c.add + "\n"
		_, err := engine.Parse("rules.yaml", []byte(src), engine.Known{})
		require.ErrorContains(t, err, c.want, name)
	}
}
