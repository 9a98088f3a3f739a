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
		"empty":                           {"", "rules.yaml:1:1: the file is empty"},
		"only a comment":                  {"# nothing\n", "rules.yaml:1:1: the file is empty"},
		"tab":                             {"version: 1\nrules:\n\t- name: a\n", "rules.yaml:3:1: this is no YAML"},
		"two documents":                   {"version: 1\nrules: []\n---\nversion: 1\n", "only one document"},
		"version":                         {"version: 2\nrules: []\n", "rules.yaml:1:10: version: write \"version: 1\""},
		"no rules":                        {"version: 1\n", "rules: write a list"},
		"unknown top key":                 {"version: 1\nrulez: []\n", `rules.yaml:2:1: rules file: unknown key "rulez": use version, languages, hours, fallback, busy, rules`},
		"unknown rule key":                {rule("    match: {default: true}\n    replay: {text: x}\n"), `rules.yaml:5:5: rule: unknown key "replay"`},
		"key twice":                       {rule("    match: {default: true}\n    reply: {text: x}\n    reply: {text: y}\n"), `rules.yaml:6:5: rule: the key "reply" is there twice, first in line 5`},
		"name twice":                      {rule("    match: {event: SCAN}\n    silence: true\n  - name: a\n    match: {event: CLICK}\n    silence: true\n"), `rules.yaml:6:11: rule "a": the name is taken by the rule in line 3`},
		"no name":                         {head + "  - match: {default: true}\n    silence: true\n", "rules.yaml:3:5: rule: name is missing"},
		"reserved name":                   {head + "  - name: fallback\n    match: {default: true}\n    silence: true\n", "rule: name: use"},
		"no match":                        {rule("    silence: true\n"), `rules.yaml:3:5: rule "a": match is missing`},
		"empty match":                     {rule("    match: {}\n    silence: true\n"), "give at least one condition"},
		"no action":                       {rule("    match: {default: true}\n"), "write exactly one of reply, call"},
		"two actions":                     {rule("    match: {default: true}\n    silence: true\n    reply: {text: x}\n"), "write exactly one of"},
		"text and event":                  {rule("    match: {event: CLICK, text: {equals: x}}\n    silence: true\n"), "no callback meets them together"},
		"key of VIEW":                     {rule("    match: {event: VIEW, menu_key: {equals: x}}\n    silence: true\n"), "none of these events has a menu_key"},
		"empty text":                      {rule("    match: {text: {contains: [\"\"]}}\n    silence: true\n"), "would match by accident"},
		"text twice":                      {rule("    match: {text: {equals: [x, x]}}\n    silence: true\n"), `"x" is there twice`},
		"two kinds":                       {rule("    match: {text: {equals: x, regexp: y}}\n    silence: true\n"), "or else regexp"},
		"look-around":                     {rule("    match: {text: {regexp: 'a(?=b)'}}\n    silence: true\n"), "RE2 syntax is expected"},
		"long expression":                 {rule("    match: {text: {regexp: '" + strings.Repeat("a", 600) + "'}}\n    silence: true\n"), "at most 512"},
		"account":                         {rule("    accounts: [nobody]\n    match: {default: true}\n    silence: true\n"), `there is no account "nobody": configured are demo`},
		"back end":                        {rule("    match: {default: true}\n    call: {backend: cora, path: /x}\n"), `there is no back end "cora": configured are core`},
		"address in rule":                 {rule("    match: {default: true}\n    call: {backend: 'http://10.0.0.1', path: /x}\n"), "addresses belong to the configuration"},
		"path":                            {rule("    match: {default: true}\n    call: {backend: core, path: x}\n"), "it must begin with /"},
		"path leaves":                     {rule("    match: {default: true}\n    call: {backend: core, path: /a/../b}\n"), "would change the path"},
		"query in path":                   {rule("    match: {default: true}\n    call: {backend: core, path: '/a?b=c'}\n"), "use query"},
		"body of GET":                     {rule("    match: {default: true}\n    call: {backend: core, path: /x, method: GET, body: {a: b}}\n"), "GET has no body"},
		"text as body":                    {rule("    match: {default: true}\n    call: {backend: core, path: /x, body: '{}'}\n"), "YAML mapping"},
		"infinite body":                   {rule("    match: {default: true}\n    call: {backend: core, path: /x, body: {a: .inf}}\n"), "no JSON value"},
		"odd tag":                         {rule("    match: {default: true}\n    call: {backend: core, path: /x, body: {a: !!binary aGk=}}\n"), "put the value in quotes"},
		"timeout":                         {rule("    match: {default: true}\n    call: {backend: core, path: /x, timeout: 3m}\n"), "from 10ms to 30s"},
		"method":                          {rule("    match: {default: true}\n    call: {backend: core, path: /x, method: TRACE}\n"), "method: use GET"},
		"class":                           {rule("    match: {default: true}\n    class: both\n    reply: {text: x}\n"), "prefer_duplicate or prefer_loss"},
		"valid for":                       {rule("    match: {default: true}\n    valid_for: 49h\n    reply: {text: x}\n"), "valid_for: write a duration"},
		"six replies":                     {rule("    match: {default: true}\n    reply: [{text: a}, {text: b}, {text: c}, {text: d}, {text: e}, {text: f}]\n"), "give 1 to 5 replies"},
		"two in one":                      {rule("    match: {default: true}\n    reply: {text: x, image: y}\n"), "exactly one of text, image"},
		"long text":                       {rule("    match: {default: true}\n    reply: {text: '" + strings.Repeat("x", 2049) + "'}\n"), "WeChat takes 2048"},
		"news without url":                {rule("    match: {default: true}\n    reply: {news: {title: x}}\n"), "url is missing"},
		"javascript":                      {rule("    match: {default: true}\n    reply: {news: {title: x, url: 'javascript:alert(1)'}}\n"), "http or https"},
		"menu item twice":                 {rule("    match: {default: true}\n    reply: {menu: {items: [{id: a, text: x}, {id: a, text: y}]}}\n"), `the id "a" is there twice`},
		"at_once template":                {rule("    match: {default: true}\n    answer: at_once\n    reply: {text: '{{.Content}}'}\n"), "without {{ }}"},
		"at_once image":                   {rule("    match: {default: true}\n    answer: at_once\n    reply: {image: x}\n"), "exactly one reply with a text"},
		"at_once call":                    {rule("    match: {default: true}\n    answer: at_once\n    call: {backend: core, path: /x}\n"), "calls need time"},
		"at_once LOCATION":                {rule("    match: {event: LOCATION}\n    answer: at_once\n    reply: {text: x}\n"), `no answer to the event "LOCATION"`},
		"late hand-over":                  {rule("    match: {default: true}\n    hand_over: true\n"), `add "answer: at_once"`},
		"after goodbye":                   {rule("    match: {event: unsubscribe}\n    reply: {text: bye}\n"), "nothing can be sent after unsubscribe"},
		"anchor":                          {rule("    match: &m {default: true}\n    silence: true\n"), "anchors and aliases"},
		"unreachable":                     {rule("    match: {default: true}\n    silence: true\n  - name: b\n    match: {text: {equals: x}}\n    silence: true\n"), `rules.yaml:6:3: rule "b": it can never match, since the default rule "a" in line 3`},
		"unknown field":                   {rule("    match: {default: true}\n    reply: {text: '{{.Contnet}}'}\n"), "the field .Contnet does not exist: use one of .Account"},
		"unknown $ field":                 {rule("    match: {default: true}\n    reply: {text: '{{range .Match}}{{$.Nope}}{{end}}'}\n"), "the field .Nope"},
		"answer too early":                {rule("    match: {default: true}\n    reply: {text: '{{.Answer.x}}'}\n"), "only in the reply of a rule with call"},
		"printf":                          {rule("    match: {default: true}\n    reply: {text: '{{printf .Content}}'}\n"), "the function printf does not exist"},
		"escaper by name":                 {rule("    match: {default: true}\n    reply: {text: '{{_value .Content}}'}\n"), "the function _value does not exist"},
		"define":                          {rule("    match: {default: true}\n    reply: {text: '{{define \"x\"}}y{{end}}z'}\n"), "not supported in rules"},
		"template call":                   {rule("    match: {default: true}\n    reply: {text: '{{template \"x\"}}'}\n"), "not supported in rules"},
		"assign root":                     {rule("    match: {default: true}\n    reply: {text: '{{$ = .Match}}'}\n"), "cannot be assigned"},
		"open template":                   {rule("    match: {default: true}\n    reply: {text: '{{.Content'}\n"), "does not parse"},
		"text without the first language": {rule("    match: {default: true}\n    reply: {text: {en: x}}\n"), "zh is missing"},
		"language name":                   {rule("    match: {default: true}\n    reply: {text: {zh: x, English: y}}\n"), `"English" is no language`},
		"letters":                         {"version: 1\nlanguages: {detect: {zh: chinese}}\nrules: []\n", "rules.yaml:2:26: languages: detect: letters"},
		"account language":                {"version: 1\nlanguages: {accounts: {nobody: en}}\nrules: []\n", `there is no account "nobody"`},
		"no week":                         {"version: 1\nhours: {a: {zone: UTC}}\nrules: []\n", "week is missing"},
		"zone":                            {"version: 1\nhours: {a: {zone: Mars/Base, week: {mon: closed}}}\nrules: []\n", "rules.yaml:2:19: hours: a: zone"},
		"day":                             {"version: 1\nhours: {a: {week: {monday: closed}}}\nrules: []\n", `"monday" is no day`},
		"day twice":                       {"version: 1\nhours: {a: {week: {mon-wed: '09:00-10:00', tue: '09:00-10:00'}}}\nrules: []\n", "tue is there twice"},
		"time":                            {"version: 1\nhours: {a: {week: {mon: '9-17'}}}\nrules: []\n", "write times like"},
		"times overlap":                   {"version: 1\nhours: {a: {week: {mon: '09:00-12:00, 11:00-13:00'}}}\nrules: []\n", "overlap"},
		"date":                            {"version: 1\nhours: {a: {week: {mon: '09:00-10:00'}, holidays: [2026-10-07..2026-10-01]}}\nrules: []\n", "write days like"},
		"too many days":                   {"version: 1\nhours: {a: {week: {mon: '09:00-10:00'}, holidays: [2026-10-07..2999-10-01]}}\nrules: []\n", "write days like"},
		"workday of what":                 {"version: 1\nhours: {a: {week: {tue: '09:00-10:00'}, workdays: 2026-10-07}}\nrules: []\n", "Monday has none"},
		"no such hours":                   {rule("    match: {default: true}\n    during: office\n    silence: true\n"), `there are no hours "office"`},
		"limit":                           {rule("    match: {default: true}\n    limit: 5/10m\n    reply: {text: x}\n"), "rules.yaml:5:12: rule \"a\": limit: write it like"},
		"limit of 0":                      {rule("    match: {default: true}\n    limit: 0 per 10m\n    reply: {text: x}\n"), "1 to 1000 times"},
		"limit at once":                   {rule("    match: {text: {equals: x}}\n    answer: at_once\n    limit: 1 per 10m\n    reply: {text: x}\n"), "the door keeps no count"},
		"away":                            {rule("    match: {default: true}\n    limit: {rate: 1 per 1m, redis_away: maybe}\n    reply: {text: x}\n"), "write allow or deny"},
		"engine":                          {rule("    match: {default: true}\n    engine: sm4rt\n"), `there is no engine "sm4rt": configured are smart`},
		"engine and reply":                {rule("    match: {default: true}\n    engine: smart\n    reply: {text: x}\n"), "write exactly one of"},
		"engine's questions":              {rule("    match: {default: true}\n    engine: smart\n    dialogue: {steps: [{ask: {text: x}, store: y}]}\n"), "asks its own questions"},
		"no steps":                        {rule("    match: {default: true}\n    dialogue: {timeout: 1m}\n    reply: {text: x}\n"), "write a list of 1 to 20 questions"},
		"silent dialogue":                 {rule("    match: {default: true}\n    dialogue: {steps: [{ask: {text: x}, store: y}]}\n    silence: true\n"), "dialogue: it goes with"},
		"no ask":                          {rule("    match: {default: true}\n    dialogue: {steps: [{store: y}]}\n    reply: {text: x}\n"), "rules.yaml:5:24: rule \"a\": dialogue: step 1: ask is missing"},
		"no store":                        {rule("    match: {default: true}\n    dialogue: {steps: [{ask: {text: x}, regexp: '(a)'}]}\n    reply: {text: x}\n"), "store is missing"},
		"variable":                        {rule("    match: {default: true}\n    dialogue: {steps: [{ask: {text: x}, store: Card}]}\n    reply: {text: x}\n"), `variable "Card"`},
		"unknown variable":                {rule("    match: {default: true}\n    dialogue: {steps: [{ask: {text: x}, store: card}]}\n    reply: {text: '{{.Vars.crad}}'}\n"), "nothing stores .Vars.crad"},
		"asked later":                     {rule("    match: {default: true}\n    dialogue: {steps: [{ask: {text: x}, store: a, when: {b: c}}, {ask: {text: x}, store: b}]}\n    reply: {text: x}\n"), `no step before stores "b"`},
		"choice twice":                    {rule("    match: {default: true}\n    dialogue: {steps: [{ask: {text: x}, store: a, choices: {yes: [y], no: [Y]}}]}\n    reply: {text: x}\n"), `"Y" stands for "yes" already`},
		"choices and regexp":              {rule("    match: {default: true}\n    dialogue: {steps: [{ask: {text: x}, store: a, choices: {yes: [y]}, regexp: x}]}\n    reply: {text: x}\n"), "remove one"},
		"Match at the end":                {rule("    match: {text: {regexp: '(a)'}}\n    dialogue: {steps: [{ask: {text: x}, store: a}]}\n    reply: {text: '{{index .Match 1}}'}\n"), ".Match is gone"},
		"swallowed":                       {rule("    match: {default: true}\n    answer: at_once\n    reply: {text: x}\n  - name: b\n    match: {event: LOCATION}\n    dialogue: {steps: [{ask: {text: x}, store: a}]}\n    reply: {text: x}\n"), "would take every answer out of the dialogue"},
		"fallback dynamic":                {"version: 1\nfallback: '{{.Content}}'\nrules:\n  - name: a\n    match: {default: true}\n    silence: true\n", "remove {{ }}"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := engine.Parse("rules.yaml", []byte(c.src), engine.Known{Accounts: []string{"demo"}, Backends: []string{"core"}, Engines: []string{"smart"}})
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
	f.Add("version: 1\nlanguages: {default: en, detect: {zh: han}}\nhours: {a: {week: {mon-fri: '09:00-12:00, 22:00-02:00'}, holidays: [2026-10-01..2026-10-07], workdays: 2026-10-10}}\nrules:\n- name: a\n  match: {text: {regexp: '(?P<x>a)'}}\n  during: a\n  limit: {rate: 5 per 10m, instead: silence}\n  reply: {text: {en: x, zh: y}}\n- name: b\n  match: {default: true}\n  engine: {name: e, stay: 5m}\n")
	f.Add("version: 1\nrules:\n- name: a\n  match: {default: true}\n  dialogue: {timeout: 1m, cancel: {words: [q], reply: {text: z}}, timed_out: {text: late}, steps: [{ask: {text: q}, store: x, choices: {a: b}, when: {y: c}, tries: 2, gave_up: {text: w}}, {ask: {text: '{{.Vars.x}}'}, regexp: '(?P<n>\\d)', error: {text: e}}]}\n  reply: {text: '{{.Vars.n}}'}\n")
	f.Fuzz(func(t *testing.T, src string) {
		r, err := engine.Parse("f", []byte(src), engine.Known{})
		if err != nil {
			if r != nil || fault.KindOf(err) != fault.Invalid {
				t.Fatalf("error %v with rules %v", err, r)
			}
			return
		}
		var state *engine.State
		for _, c := range []string{"", "a", "{{.}}", "\x00\xff<a href=x>", "1", "b"} {
			d, err := r.DecideIn(text(c), engine.Situation{State: state})
			if d.Moves {
				state = d.State
			}
			if d.Ask != nil && d.Take(engine.Said{HandOver: c == "a"}) != nil {
				t.Fatal("an engine may say nothing")
			}
			if err == nil && d.Call != nil {
				_ = d.Render(map[string]any{"a": c})
			}
			r.AtOnce(text(c))
		}
	})
}
