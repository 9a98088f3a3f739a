package engine

import (
	"unicode"

	"tidegate/pkg/wire"
)

// firstLanguage is the language of a file that names none.
const firstLanguage = "zh"

// languages decide in which language a follower is answered.
type languages struct {
	first    string            // of accounts that have none of their own
	accounts map[string]string // language of an account
	detect   []script          // in order; the first that occurs in the text wins
}

// script ties letters to a language.
type script struct {
	lang  string
	table *unicode.RangeTable
}

// scripts are the letters that detect may name.
var scripts = map[string]*unicode.RangeTable{
	"han": unicode.Han, "latin": unicode.Latin, "kana": unicode.Katakana, "hangul": unicode.Hangul,
	"cyrillic": unicode.Cyrillic, "arabic": unicode.Arabic, "thai": unicode.Thai,
}

// of gives the language of an answer to c: the one that the follower is known
// to use, else that of the letters in his message, else the account's.
func (l *languages) of(c *wire.Callback, s subject, chosen string) string {
	if chosen != "" {
		return chosen
	}
	if s.text != nil && len(l.detect) > 0 {
		text := cut(*s.text, maxMatched)
		for _, d := range l.detect {
			for _, r := range text {
				if unicode.Is(d.table, r) {
					return d.lang
				}
			}
		}
	}
	if own := l.accounts[c.Account]; own != "" {
		return own
	}
	return l.first
}

// inLanguages is a template that is written in several languages.
type inLanguages struct {
	by    map[string]*tmpl
	first string // the language that every text has
}

// of chooses the template of a language; a language that a text does not have
// is answered in the file's first one. Templates without languages are the same
// in all of them.
func (t *tmpl) of(lang string) *tmpl {
	if t.in == nil {
		return t
	}
	if own := t.in.by[lang]; own != nil {
		return own
	}
	return t.in.by[t.in.first]
}

// said is a text that needs no data.
func (t *tmpl) said(lang string) string {
	if t == nil {
		return ""
	}
	return t.of(lang).source
}

// each calls do with the template of each language until it gives an error.
func (t *tmpl) each(do func(*tmpl) error) error {
	if t.in == nil {
		return do(t)
	}
	for _, own := range t.in.by {
		if err := do(own); err != nil {
			return err
		}
	}
	return nil
}
