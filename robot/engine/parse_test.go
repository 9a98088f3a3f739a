package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/robot/engine"
)

// Each case is a file with one slip; the message must name the place and say
// what to do.
func TestProblemsNamePlaceAndRemedy(t *testing.T) {
	head := "version: 1\nrules:\n"
	rule := func(rest string) string { return head + "  - name: a\n" + rest }
	for name, c := range map[string]struct{ src, want string }{
		"empty":            {"", "rules.yaml:1:1: the file is empty"},
		"only a comment":   {"# nothing\n", "rules.yaml:1:1: the file is empty"},
		"tab":              {"version: 1\nrules:\n\t- name: a\n", "rules.yaml:3:1: this is no YAML"},
		"two documents":    {"version: 1\nrules: []\n---\nversion: 1\n", "only one document"},
		"version":          {"version: 2\nrules: []\n", "rules.yaml:1:10: version: write \"version: 1\""},
		"no rules":         {"version: 1\n", "rules: write a list"},
		"unknown top key":  {"version: 1\nrulez: []\n", `rules.yaml:2:1: rules file: unknown key "rulez": use version, fallback, rules`},
		"unknown rule key": {rule("    match: {default: true}\n    replay: {text: x}\n"), `rules.yaml:5:5: rule: unknown key "replay"`},
		"key twice":        {rule("    match: {default: true}\n    reply: {text: x}\n    reply: {text: y}\n"), `rules.yaml:6:5: rule: the key "reply" is there twice, first in line 5`},
		"name twice":       {rule("    match: {event: SCAN}\n    silence: true\n  - name: a\n    match: {event: CLICK}\n    silence: true\n"), `rules.yaml:6:11: rule "a": the name is taken by the rule in line 3`},
		"no name":          {head + "  - match: {default: true}\n    silence: true\n", "rules.yaml:3:5: rule: name is missing"},
		"reserved name":    {head + "  - name: fallback\n    match: {default: true}\n    silence: true\n", "rule: name: use"},
		"no match":         {rule("    silence: true\n"), `rules.yaml:3:5: rule "a": match is missing`},
		"empty match":      {rule("    match: {}\n    silence: true\n"), "give at least one condition"},
		"no action":        {rule("    match: {default: true}\n"), "write exactly one of reply, call"},
		"two actions":      {rule("    match: {default: true}\n    silence: true\n    reply: {text: x}\n"), "write exactly one of"},
		"text and event":   {rule("    match: {event: CLICK, text: {equals: x}}\n    silence: true\n"), "no callback meets them together"},
		"key of VIEW":      {rule("    match: {event: VIEW, menu_key: {equals: x}}\n    silence: true\n"), "none of these events has a menu_key"},
		"empty text":       {rule("    match: {text: {contains: [\"\"]}}\n    silence: true\n"), "would match by accident"},
		"text twice":       {rule("    match: {text: {equals: [x, x]}}\n    silence: true\n"), `"x" is there twice`},
		"two kinds":        {rule("    match: {text: {equals: x, regexp: y}}\n    silence: true\n"), "or else regexp"},
		"look-around":      {rule("    match: {text: {regexp: 'a(?=b)'}}\n    silence: true\n"), "RE2 syntax is expected"},
		"long expression":  {rule("    match: {text: {regexp: '" + strings.Repeat("a", 600) + "'}}\n    silence: true\n"), "at most 512"},
		"account":          {rule("    accounts: [nobody]\n    match: {default: true}\n    silence: true\n"), `there is no account "nobody": configured are demo`},
		"back end":         {rule("    match: {default: true}\n    call: {backend: cora, path: /x}\n"), `there is no back end "cora": configured are core`},
		"address in rule":  {rule("    match: {default: true}\n    call: {backend: 'http://10.0.0.1', path: /x}\n"), "addresses belong to the configuration"},
		"path":             {rule("    match: {default: true}\n    call: {backend: core, path: x}\n"), "it must begin with /"},
		"path leaves":      {rule("    match: {default: true}\n    call: {backend: core, path: /a/../b}\n"), "would change the path"},
		"query in path":    {rule("    match: {default: true}\n    call: {backend: core, path: '/a?b=c'}\n"), "use query"},
		"body of GET":      {rule("    match: {default: true}\n    call: {backend: core, path: /x, method: GET, body: {a: b}}\n"), "GET has no body"},
		"text as body":     {rule("    match: {default: true}\n    call: {backend: core, path: /x, body: '{}'}\n"), "YAML mapping"},
		"infinite body":    {rule("    match: {default: true}\n    call: {backend: core, path: /x, body: {a: .inf}}\n"), "no JSON value"},
		"odd tag":          {rule("    match: {default: true}\n    call: {backend: core, path: /x, body: {a: !!binary aGk=}}\n"), "put the value in quotes"},
		"timeout":          {rule("    match: {default: true}\n    call: {backend: core, path: /x, timeout: 3m}\n"), "from 10ms to 30s"},
		"method":           {rule("    match: {default: true}\n    call: {backend: core, path: /x, method: TRACE}\n"), "method: use GET"},
		"class":            {rule("    match: {default: true}\n    class: both\n    reply: {text: x}\n"), "prefer_duplicate or prefer_loss"},
		"valid for":        {rule("    match: {default: true}\n    valid_for: 49h\n    reply: {text: x}\n"), "valid_for: write a duration"},
		"six replies":      {rule("    match: {default: true}\n    reply: [{text: a}, {text: b}, {text: c}, {text: d}, {text: e}, {text: f}]\n"), "give 1 to 5 replies"},
		"two in one":       {rule("    match: {default: true}\n    reply: {text: x, image: y}\n"), "exactly one of text, image"},
		"long text":        {rule("    match: {default: true}\n    reply: {text: '" + strings.Repeat("x", 2049) + "'}\n"), "WeChat takes 2048"},
		"news without url": {rule("    match: {default: true}\n    reply: {news: {title: x}}\n"), "url is missing"},
		"javascript":       {rule("    match: {default: true}\n    reply: {news: {title: x, url: 'javascript:alert(1)'}}\n"), "http or https"},
		"menu item twice":  {rule("    match: {default: true}\n    reply: {menu: {items: [{id: a, text: x}, {id: a, text: y}]}}\n"), `the id "a" is there twice`},
		"at_once template": {rule("    match: {default: true}\n    answer: at_once\n    reply: {text: '{{.Content}}'}\n"), "without {{ }}"},
		"at_once image":    {rule("    match: {default: true}\n    answer: at_once\n    reply: {image: x}\n"), "exactly one reply with a text"},
		"at_once call":     {rule("    match: {default: true}\n    answer: at_once\n    call: {backend: core, path: /x}\n"), "calls need time"},
		"at_once LOCATION": {rule("    match: {event: LOCATION}\n    answer: at_once\n    reply: {text: x}\n"), `no answer to the event "LOCATION"`},
		"late hand-over":   {rule("    match: {default: true}\n    hand_over: true\n"), `add "answer: at_once"`},
		"after goodbye":    {rule("    match: {event: unsubscribe}\n    reply: {text: bye}\n"), "nothing can be sent after unsubscribe"},
		"anchor":           {rule("    match: &m {default: true}\n    silence: true\n"), "anchors and aliases"},
		"unreachable":      {rule("    match: {default: true}\n    silence: true\n  - name: b\n    match: {text: {equals: x}}\n    silence: true\n"), `rules.yaml:6:3: rule "b": it can never match, since the default rule "a" in line 3`},
		"unknown field":    {rule("    match: {default: true}\n    reply: {text: '{{.Contnet}}'}\n"), "the field .Contnet does not exist: use one of .Account"},
		"unknown $ field":  {rule("    match: {default: true}\n    reply: {text: '{{range .Match}}{{$.Nope}}{{end}}'}\n"), "the field .Nope"},
		"answer too early": {rule("    match: {default: true}\n    reply: {text: '{{.Answer.x}}'}\n"), "only in the reply of a rule with call"},
		"printf":           {rule("    match: {default: true}\n    reply: {text: '{{printf .Content}}'}\n"), "the function printf does not exist"},
		"escaper by name":  {rule("    match: {default: true}\n    reply: {text: '{{_value .Content}}'}\n"), "the function _value does not exist"},
		"define":           {rule("    match: {default: true}\n    reply: {text: '{{define \"x\"}}y{{end}}z'}\n"), "not supported in rules"},
		"template call":    {rule("    match: {default: true}\n    reply: {text: '{{template \"x\"}}'}\n"), "not supported in rules"},
		"assign root":      {rule("    match: {default: true}\n    reply: {text: '{{$ = .Match}}'}\n"), "cannot be assigned"},
		"open template":    {rule("    match: {default: true}\n    reply: {text: '{{.Content'}\n"), "does not parse"},
		"fallback dynamic": {"version: 1\nfallback: '{{.Content}}'\nrules:\n  - name: a\n    match: {default: true}\n    silence: true\n", "remove {{ }}"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := engine.Parse("rules.yaml", []byte(c.src), engine.Known{Accounts: []string{"demo"}, Backends: []string{"core"}})
			require.Error(t, err)
			require.Contains(t, err.Error(), c.want)
			require.Equal(t, fault.Invalid, fault.KindOf(err))
			var p engine.Problems
			require.ErrorAs(t, err, &p)
			for _, one := range p {
				require.Positive(t, one.Line)
				require.Positive(t, one.Column)
			}
		})
	}
}

func TestAllProblemsAreToldAtOnceInOrder(t *testing.T) {
	src := "version: 1\nrules:\n  - name: a\n    match: {default: true}\n    reply: {text: '{{.A}}'}\n  - name: a\n    match: {event: [a b]}\n    silence: maybe\n"
	_, err := engine.Parse("rules.yaml", []byte(src), engine.Known{})
	var p engine.Problems
	require.ErrorAs(t, err, &p)
	require.Len(t, p, 2, "the second rule is not read further once its name is taken")
	require.Less(t, p[0].Line, p[1].Line)

	many := "version: 1\nrules:\n" + strings.Repeat("  - {x: 1}\n", 500)
	_, err = engine.Parse("rules.yaml", []byte(many), engine.Known{})
	require.ErrorAs(t, err, &p)
	require.Len(t, p, 20)
}

// FuzzParse feeds arbitrary files: no panic, and either rules or problems.
func FuzzParse(f *testing.F) {
	f.Add("version: 1\nrules:\n  - name: a\n    match: {default: true}\n    reply: {text: '{{ .Content }}'}\n")
	f.Add("version: 1\nfallback: x\nrules:\n  - {name: a, match: {text: {regexp: '(a|b)*'}}, call: {backend: core, path: '/{{.OpenID}}', body: {a: [1, !number '{{.CreateTime}}', null]}}}\n")
	f.Add("a: &a [*a, *a]\n")
	f.Add("? [a]\n: b\n")
	f.Add("--- !!map {? !!str \"\\x00\" : }\n")
	f.Add("version: 1\nrules:\n- name: a\n  match: {default: true}\n  reply: {text: '{{range 9999999999}}{{end}}'}\n")
	f.Fuzz(func(t *testing.T, src string) {
		r, err := engine.Parse("f", []byte(src), engine.Known{})
		if err != nil {
			if r != nil || fault.KindOf(err) != fault.Invalid {
				t.Fatalf("error %v with rules %v", err, r)
			}
			return
		}
		for _, c := range []string{"", "a", "{{.}}", "\x00\xff<a href=x>"} {
			d, err := r.Decide(text(c))
			if err == nil && d.Call != nil {
				_ = d.Render(map[string]any{"a": c})
			}
			r.AtOnce(text(c))
		}
	})
}
