package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/robot/engine"
)

func TestGuardOfACall(t *testing.T) {
	r := rules(t, "  - name: queue\n    match: {text: {regexp: '^queue (\\d+)$'}}\n    call: {backend: core, method: GET, path: '/branches/{{ index .Match 1 }}', guard: shared}\n    reply: {text: x}\n"+
		"  - name: card\n    match: {text: {equals: card}}\n    call: {backend: core, method: GET, path: /card, query: {openid: '{{ .OpenID }}'}, guard: {class: personal, cache: true, key: card}}\n    reply: {text: x}\n"+
		"  - name: bind\n    match: {text: {equals: bind}}\n    call: {backend: core, path: /bind, guard: {changes: [card, 'limit {{ .OpenID }}']}}\n    reply: {text: x}\n"+
		"  - name: plain\n    match: {default: true}\n    call: {backend: core, path: /x}\n    reply: {text: x}\n")
	for content, want := range map[string]engine.Call{
		"queue 7": {Backend: "core", Method: "GET", Path: "/branches/7", Class: "shared"},
		"card":    {Backend: "core", Method: "GET", Path: "/card?openid=oUser-1", Class: "personal", Cache: true, Resource: "card"},
	} {
		d, err := r.Decide(text(content))
		require.NoError(t, err)
		require.Equal(t, want, *d.Call)
	}
	d, err := r.Decide(text("bind"))
	require.NoError(t, err)
	require.Equal(t, []string{"card", "limit oUser-1"}, d.Call.Changes)
	require.Equal(t, []engine.GuardUse{{Rule: "queue", Backend: "core"}, {Rule: "card", Backend: "core", Cache: true}, {Rule: "bind", Backend: "core"}}, r.Guards())
}

func TestGuardProblems(t *testing.T) {
	for want, call := range map[string]string{
		"only answers to GET can be shared":  "{backend: core, path: /x, guard: shared}",
		"write shared (the answer is":        "{backend: core, method: GET, path: /x, guard: common}",
		"class is missing":                   "{backend: core, method: GET, path: /x, guard: {cache: true}}",
		"shared answers are kept anyway":     "{backend: core, method: GET, path: /x, guard: {class: shared, cache: true}}",
		"a GET changes nothing":              "{backend: core, method: GET, path: /x, guard: {class: shared, changes: a}}",
		"or what the call changes":           "{backend: core, path: /x, guard: {}}",
		`unknown key "ttl": use class, cach`: "{backend: core, method: GET, path: /x, guard: {class: shared, ttl: 5s}}",
	} {
		_, err := engine.Parse("rules.yaml", []byte("version: 1\nrules:\n  - name: a\n    match: {default: true}\n    call: "+call+"\n"), engine.Known{})
		require.ErrorContains(t, err, want)
	}
}
