package engine

import (
	"time"

	"tidegate/pkg/wire"
)

// Rules are the rules of all accounts, in order. They are immutable and safe
// for concurrent use.
type Rules struct {
	file     string
	version  string
	fallback *tmpl // static; nil if the file gives none
	busy     *tmpl // the same for who is refused because of overload
	langs    languages
	list     []*rule
	byName   map[string]*rule
}

// rule is one entry of the file, checked and compiled.
type rule struct {
	name     string
	line     int
	accounts map[string]bool // nil: every account
	match    matcher
	during   []*calendar // nil: always
	outside  []*calendar
	atOnce   bool
	handOver bool
	desk     string
	silence  bool
	dialogue *dialogue // before call and replies
	limit    *limit
	replies  []reply
	call     *call
	external *external
	bot      *botAction
	class    string
	fallback *tmpl
	validFor time.Duration
	urgency  urgency
	wants    Wants
	bound    bool    // for followers who are bound only
	unbound  []reply // for the others
}

// Version tells rules files apart: the beginning of the SHA-256 of the file, in
// hex.
func (r *Rules) Version() string { return r.version }

// File is where the rules were read.
func (r *Rules) File() string { return r.file }

// Fallback is the text that is sent when a callback cannot be worked at all
// and no rule has a text of its own, in the file's first language; "" if the
// file gives none.
func (r *Rules) Fallback() string { return r.fallback.said(r.langs.first) }

// FallbackFor is Fallback in the language of the follower who wrote c.
func (r *Rules) FallbackFor(c *wire.Callback) string {
	return r.fallback.said(r.langs.of(c, subjectOf(c), ""))
}

// Len is the number of rules.
func (r *Rules) Len() int { return len(r.list) }

// Backends lists the names of the back ends that rules call, each once, in
// order of appearance.
func (r *Rules) Backends() []string {
	return r.names(func(u *rule) string {
		if u.call == nil {
			return ""
		}
		return u.call.backend
	})
}

// names collects what of gives for the rules, without "", each once.
func (r *Rules) names(of func(*rule) string) []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, u := range r.list {
		if name := of(u); !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}

// find gives the first rule that matches, with the groups of its regular
// expression. passed, if there is one, hears of every rule before it and why it
// was passed over.
func (r *Rules) find(c *wire.Callback, s subject, passed func(u *rule, why string)) (*rule, []string) {
	at := moment(c)
	for _, u := range r.list {
		why, groups := u.takes(c, s, at)
		if why == "" {
			return u, groups
		}
		if passed != nil {
			passed(u, why)
		}
	}
	return nil, nil
}

// takes tells which condition of the rule does not hold, or "".
func (u *rule) takes(c *wire.Callback, s subject, at time.Time) (why string, groups []string) {
	if u.accounts != nil && !u.accounts[c.Account] {
		return "accounts", nil
	}
	if why, groups = u.match.matches(s); why != "" {
		return why, nil
	}
	switch {
	case u.during != nil && !anyOpen(u.during, at):
		return "during", nil
	case u.outside != nil && anyOpen(u.outside, at):
		return "outside", nil
	case u.bot != nil && !u.bot.takes(c):
		return outsideShare, nil
	}
	return "", groups
}
