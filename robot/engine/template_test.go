package engine_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tidegate/robot/engine"
)

// hostile are texts that try to become something other than text.
var hostile = []string{
	`{{ .OpenID }}`, `{{range 1000000}}x{{end}}`, `"},"admin":true,"x":{"`, `\`, `"`, "a\nb", "\r\nX-Evil: 1",
	`<a href="http://evil.example">free money</a>`, `< a href='x'>`, "<\u200Ba>", `</xml>`, `..`, `../admin`, `.`, `a/b`, `a?b=c&d=e#f`, `%2e%2e`, `%00`,
	"\x00\x01\x1b[31m", "\xff\xfe", "\u202Egnp.exe", `'; drop table x; --`, "＜", "😀", `%s%d%!`, `<`,
}

// injected is one rule that puts the content everywhere; the path is apart,
// because some contents are refused there.
const injected = `
  - name: of-%[1]s
    accounts: %[1]s
    match: {text: {any: true}}
    call:
      backend: core
      path: %[2]s
      query: {q: "{{ .Content }}"}
      body: {text: "say {{ .Content }}", list: ["{{ .Content }}"], n: 1}
    reply:
      - text: "<b>{{ .Answer }}"
      - news: {title: "{{ .Answer }}", url: "https://shop.example/x?y={{ .Answer }}"}
`

func injectionRules(t testing.TB) *engine.Rules {
	src := "version: 1\nrules:" + fmt.Sprintf(injected, "demo", "/u/{{ .Content }}/x") + fmt.Sprintf(injected, "other", "/u")
	r, err := engine.Parse("r", []byte(src), engine.Known{})
	require.NoError(t, err)
	return r
}

// checkInjection is the property: whatever the content, a prepared call keeps
// its shape and a reply contains no tag of the content's.
func checkInjection(t testing.TB, r *engine.Rules, content string) {
	c := text(content)
	if d, err := r.Decide(c); err == nil {
		require.True(t, strings.HasPrefix(d.Call.Path, "/u/"), d.Call.Path)
		u, err := url.ParseRequestURI(d.Call.Path)
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(u.EscapedPath(), "/"), d.Call.Path)
		require.Equal(t, []string{content}, u.Query()["q"])
		require.Len(t, u.Query(), 1)
	}
	c.Account = "other"
	d, err := r.Decide(c)
	require.NoError(t, err)
	var body map[string]any
	require.NoError(t, json.Unmarshal(d.Call.Body, &body))
	require.Len(t, body, 3)
	clean := strings.ToValidUTF8(content, "\uFFFD")
	if utf8.ValidString(content) {
		require.Equal(t, "say "+clean, body["text"])
	}
	if err := d.Render(content); err != nil {
		require.NotContains(t, err.Error(), "evil")
		return
	}
	for _, reply := range d.Replies {
		s := reply.Text
		if reply.News != nil {
			s = reply.News.Title
			u, err := url.Parse(reply.News.URL)
			require.NoError(t, err)
			require.Equal(t, "shop.example", u.Host)
			require.Len(t, u.Query(), 1)
		}
		s = strings.TrimPrefix(s, "<b>")
		require.True(t, utf8.ValidString(s))
		for i, c := range s {
			require.False(t, unicode.IsControl(c) && c != '\n' && c != '\t', "%q", s)
			if c == '<' && i+1 < len(s) {
				next, _ := utf8.DecodeRuneInString(s[i+1:])
				require.False(t, unicode.IsLetter(next) || next == '/', "%q", s)
			}
		}
	}
}

func TestHostileContentStaysContent(t *testing.T) {
	r := injectionRules(t)
	for _, content := range hostile {
		t.Run(fmt.Sprintf("%q", content), func(t *testing.T) { checkInjection(t, r, content) })
	}
	for _, content := range []string{"..", ".", "a/b", "../x", `a\b`, "\x00", ""} {
		_, err := r.Decide(text(content))
		require.Error(t, err, "%q would change the path", content)
	}
}

func FuzzContent(f *testing.F) {
	for _, c := range hostile {
		f.Add(c)
	}
	r := injectionRules(f)
	f.Fuzz(func(t *testing.T, content string) { checkInjection(t, r, content) })
}

func render(t *testing.T, template string, answer any) (string, error) {
	t.Helper()
	quoted, err := json.Marshal(template)
	require.NoError(t, err)
	r := rules(t, "  - name: x\n    match: {text: {any: true}}\n    call: {backend: core, path: /x}\n    reply: {text: "+string(quoted)+"}\n")
	d, err := r.Decide(text("hello"))
	require.NoError(t, err)
	if err := d.Render(answer); err != nil {
		return "", err
	}
	if len(d.Replies) == 0 {
		return "", nil
	}
	return d.Replies[0].Text, nil
}

func TestFunctions(t *testing.T) {
	answer := map[string]any{
		"n": int64(9007199254740993), "f": 12.5, "s": "文字", "yes": true, "nil": nil, "big": json.Number("123456789012345678901234567890"),
		"list": []any{"a", "b", int64(3)}, "deep": map[string]any{"er": []any{map[string]any{"x": "found"}}}, "code": int64(0), "a.b": "dotted",
	}
	for template, want := range map[string]string{
		`{{.Answer.n}} {{.Answer.f}} {{.Answer.yes}} {{.Answer.big}}`:                             "9007199254740993 12.5 true 123456789012345678901234567890",
		`{{get .Answer "deep.er.0.x" "-"}} {{get .Answer "deep.er.7.x" "-"}}`:                     "found -",
		`{{get .Answer "nil" "none"}} {{get .Answer "a.b" "-"}} {{get .Answer.s "x" "text"}}`:     "none dotted text",
		`{{if eq .Answer.code 0}}ok{{else}}bad{{end}}`:                                            "ok",
		`{{if and .Answer.yes (gt .Answer.n 5)}}many{{end}}`:                                      "many",
		`{{fixed 2 .Answer.f}} {{fixed 0 "7.6"}} {{fixed 2 .Answer.n}}`:                           "",
		`{{range $i, $e := .Answer.list}}{{if $i}}, {{end}}{{$e}}{{end}}`:                         "a, b, 3",
		`{{join "、" .Answer.list}}`:                                                               "a、b、3",
		`{{truncate 1 .Answer.s}} {{truncate 9 .Answer.s}}`:                                       "文… 文字",
		`{{.Answer.nil | default "-"}} {{upper .Content}} {{mask "oZx81wQk2Lr7nVb0"}} {{mask 7}}`: "- HELLO oZx8****nVb0 *",
		`{{date "2006-01-02 15:04" 1893456000}}`:                                                  "2030-01-01 08:00",
		`{{with .Answer.deep}}{{len .er}}{{end}}`:                                                 "1",
		`{{link "https://a.example/x?y='\"<" "<a>z"}}`:                                            `<a href="https://a.example/x?y=%27%22%3C">＜a>z</a>`,
		`{{/* a comment */}}x`:                                                                    "x",
		`{{.OpenID}}{{$x := .Content}}{{$x}}`:                                                     "oUser-1hello",
	} {
		got, err := render(t, template, answer)
		if want == "" {
			require.Error(t, err, template)
			continue
		}
		require.NoError(t, err, template)
		require.Equal(t, want, got, template)
	}
}

func TestTemplatesFailCleanly(t *testing.T) {
	many := make([]any, 200)
	for i := range many {
		many[i] = strings.Repeat("secret ", 100)
	}
	for name, c := range map[string]struct {
		template string
		answer   any
		want     string
	}{
		"missing field":   {`{{.Answer.x}}`, map[string]any{"secret": 1}, "is missing"},
		"null":            {`{{.Answer.x}}`, map[string]any{"x": nil}, "null"},
		"object":          {`{{.Answer}}`, map[string]any{"secret": 1}, "list or an object"},
		"no object":       {`{{.Answer.x}}`, "secret", "cannot be filled"},
		"index":           {`{{index .Answer 7}}`, []any{"secret"}, "cannot be filled"},
		"endless range":   {`{{range 1000000000000}}{{end}}`, nil, "rounds"},
		"nested range":    {`{{range 10000}}{{range 10000}}{{range 10000}}{{end}}{{end}}{{end}}`, nil, "rounds"},
		"too much output": {`{{range .Answer}}{{.}}{{end}}`, many, "too large"},
		"no number":       {`{{fixed 2 .Answer}}`, "secret", "needs a number"},
		"huge number":     {`{{fixed 2 .Answer}}`, "1e300", "needs a number"},
		"bad address":     {`{{link .Answer "x"}}`, "javascript:secret", "link needs"},
		"address in name": {`{{link .Answer "x"}}`, "https://secret@evil.example", "link needs"},
		"bad date":        {`{{date "2006" .Answer}}`, "secret", "Unix seconds"},
		"compare":         {`{{if lt .Answer 5}}x{{end}}`, "secret", "cannot be filled"},
		"no list":         {`{{join "," .Answer}}`, "secret", "needs a list"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, c.template, c.answer)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "secret", "an error carries no content")
		})
	}
}

// FuzzTemplate feeds arbitrary template sources and answers: no panic, bounded
// output, and no content in errors.
func FuzzTemplate(f *testing.F) {
	f.Add(`{{.Content}}`, `{"a":[1,2]}`)
	f.Add(`{{range $k, $v := .Answer}}{{$k}}{{$v}}{{else}}none{{end}}`, `{"a":"b"}`)
	f.Add(`{{with $x := get .Answer "a" ""}}{{$x | truncate 3 | link "https://x.example"}}{{end}}`, `{"a":"long text"}`)
	f.Add(`{{if or (eq .Answer.a 1) (ne .Answer.a 2)}}{{break}}{{end}}`, `{"a":1}`)
	f.Add(`{{range 5}}{{continue}}{{end}}{{- /* c */ -}}`, `null`)
	f.Fuzz(func(t *testing.T, source, answer string) {
		quoted, _ := json.Marshal(source)
		r, err := engine.Parse("f", []byte("version: 1\nrules:\n  - name: x\n    match: {text: {any: true}}\n    call: {backend: core, path: /x}\n    reply: {text: "+string(quoted)+"}\n"), engine.Known{})
		if err != nil {
			return
		}
		var a any
		_ = json.Unmarshal([]byte(answer), &a)
		d, err := r.Decide(text("hello"))
		require.NoError(t, err)
		if d.Render(a) == nil {
			for _, reply := range d.Replies {
				require.LessOrEqual(t, len(reply.Text), engine.MaxText)
			}
		}
	})
}

// What hardly any rule asks for is made when one does.
func TestWhatIsMadeWhenAsked(t *testing.T) {
	r, err := engine.Parse("r", []byte("version: 1\nrules:\n  - name: a\n    match: {text: {any: true}}\n    reply: {text: '{{ .Body }}, {{ len $.Body }}, {{ get .Vars \"x\" \"none\" }}'}\n"), engine.Known{})
	require.NoError(t, err)
	c := text("hello")
	c.Body = []byte("xml")
	d, err := r.Decide(c)
	require.NoError(t, err)
	require.Equal(t, "xml, 3, none", d.Replies[0].Text)
	_, err = engine.Parse("r", []byte("version: 1\nrules:\n  - name: a\n    match: {text: {any: true}}\n    reply: {text: '{{ .Bodies }}'}\n"), engine.Known{})
	require.ErrorContains(t, err, ".Body")
}
