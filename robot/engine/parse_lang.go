package engine

import (
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxLanguages bounds the languages of one text.
const maxLanguages = 16

var languageName = regexp.MustCompile(`^[a-z]{2,3}(-[a-z0-9]{2,8})?$`)

// languages reads the section of that name; without one, texts are in Chinese
// first.
func (r *reader) languages(n *yaml.Node, known Known) languages {
	l := languages{first: firstLanguage}
	if n == nil {
		return l
	}
	f := r.mapping(n, "languages", "default", "accounts", "detect")
	if d := f["default"]; d != nil {
		l.first = r.language(d, "languages: default")
	}
	if a := f["accounts"]; a != nil {
		l.accounts = map[string]string{}
		for _, p := range r.pairs(a, "languages: accounts") {
			if known.Accounts != nil && !contains(known.Accounts, p.key.Value) {
				r.fail(p.key, "languages: accounts: there is no account %q: configured are %s", cut(p.key.Value, 64), listOr(known.Accounts, "none"))
			}
			l.accounts[p.key.Value] = r.language(p.value, "languages: accounts: "+cut(p.key.Value, 64))
		}
	}
	if d := f["detect"]; d != nil {
		for _, p := range r.pairs(d, "languages: detect") {
			s, _ := r.text(p.value, "languages: detect")
			table := scripts[s]
			if table == nil {
				r.fail(p.value, "languages: detect: letters %q are not known: write it like {zh: han, en: latin}; known are han, latin, kana, hangul, cyrillic, arabic and thai", cut(s, 64))
			}
			l.detect = append(l.detect, script{r.language(p.key, "languages: detect"), table})
		}
	}
	return l
}

func (r *reader) language(n *yaml.Node, subject string) string {
	s, ok := r.text(n, subject)
	if ok && !languageName.MatchString(s) {
		r.fail(n, "%s: %q is no language: write zh, en, zh-hk and the like", subject, cut(s, 64))
	}
	return s
}

// inLanguages reads a text that is either one value or a mapping from
// languages to values. read reads one value.
func (r *reader) inLanguages(n *yaml.Node, subject string, read func(n *yaml.Node, subject string) *tmpl) *tmpl {
	if n.Kind != yaml.MappingNode {
		return read(n, subject)
	}
	in := &inLanguages{by: map[string]*tmpl{}, first: r.first}
	pairs := r.pairs(n, subject)
	if len(pairs) > maxLanguages {
		r.fail(n, "%s: %d languages, at most %d are taken", subject, len(pairs), maxLanguages)
		return nil
	}
	static := true
	for _, p := range pairs {
		lang := r.language(p.key, subject)
		t := read(p.value, subject+": "+cut(lang, 16))
		if t == nil {
			return nil
		}
		static = static && t.static
		in.by[lang] = t
	}
	if in.by[in.first] == nil {
		r.fail(n, "%s: %s is missing: every text has the file's first language (languages: default), for followers whose own is not there", subject, in.first)
		return nil
	}
	return &tmpl{static: static, in: in}
}

// staticText reads a text without templates that WeChat can take, in one or
// several languages.
func (r *reader) staticText(n *yaml.Node, subject string) *tmpl {
	return r.inLanguages(n, subject, func(n *yaml.Node, subject string) *tmpl {
		t := r.template(n, subject, inText, scope{})
		switch {
		case t == nil:
		case !t.static:
			r.fail(n, "%s: this text is sent as it is: remove {{ }}", subject)
		case len(t.source) > MaxText:
			r.fail(n, "%s: the text has %d bytes, WeChat takes %d", subject, len(t.source), MaxText)
		case strings.TrimSpace(t.source) == "" && n.Value != "":
			r.fail(n, "%s: the text is blank: write it, or leave it out", subject)
		}
		return t
	})
}
