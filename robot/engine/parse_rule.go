package engine

import (
	"regexp"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"tidegate/pkg/wire"
)

var (
	ruleName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	backendName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)
	menuItemID  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// rule reads one rule. It gives nil if even the name is missing.
func (r *reader) rule(n *yaml.Node, known Known, names map[string]*yaml.Node) *rule {
	f := r.mapping(n, "rule", ruleKeys()...)
	u := &rule{line: n.Line, class: wire.PreferDuplicate, validFor: DefaultValidFor}
	if !r.name(n, f, names, u) {
		return nil
	}
	of := "rule \"" + u.name + "\": "
	if a := f["accounts"]; a != nil {
		u.accounts = r.accounts(a, of, known)
	}
	if m := f["match"]; m != nil {
		u.match = r.match(m, of+"match")
	} else {
		r.fail(n, "%smatch is missing: say what the rule is for, or \"match: {default: true}\"", of)
	}
	if c := f["class"]; c != nil {
		if u.class, _ = r.text(c, of+"class"); !validClass(u.class) {
			r.fail(c, "%sclass: write %s or %s", of, wire.PreferDuplicate, wire.PreferLoss)
		}
	}
	if b := f["fallback"]; b != nil {
		u.fallback = r.staticText(b, of+"fallback")
	}
	if v := f["valid_for"]; v != nil {
		u.validFor = r.duration(v, of+"valid_for", time.Second, DefaultValidFor)
	}
	u.wants = wantsOf(n)
	for _, k := range moreKeys {
		if at := f[k.name]; at != nil {
			k.read(r, at, u, of, known)
		}
	}
	r.action(n, f, u, of, known)
	r.checkRequired(n, u, of)
	return u
}

func (r *reader) name(n *yaml.Node, f fields, names map[string]*yaml.Node, u *rule) bool {
	at := f["name"]
	if at == nil {
		r.fail(n, "rule: name is missing: give it a short name of its own")
		return false
	}
	if u.name, _ = r.text(at, "rule: name"); !ruleName.MatchString(u.name) || u.name == RuleFallback {
		r.fail(at, "rule: name: use up to 64 letters, digits, _, - and . (not %q)", RuleFallback)
		return false
	}
	if first := names[u.name]; first != nil {
		r.fail(at, "rule %q: the name is taken by the rule in line %d: choose another", u.name, first.Line)
		return false
	}
	names[u.name] = at
	return true
}

func (r *reader) accounts(n *yaml.Node, of string, known Known) map[string]bool {
	out := map[string]bool{}
	for _, a := range r.texts(n, of+"accounts") {
		switch {
		case !wire.ValidAccount(a):
			r.fail(n, "%saccounts: %q is no account name", of, cut(a, 64))
		case known.Accounts != nil && !contains(known.Accounts, a):
			r.fail(n, "%saccounts: there is no account %q: configured are %s", of, a, listOr(known.Accounts, "none"))
		}
		out[a] = true
	}
	return out
}

// action reads what the rule does and refuses what contradicts itself.
func (r *reader) action(n *yaml.Node, f fields, u *rule, of string, known Known) {
	if a := f["answer"]; a != nil {
		if s, _ := r.text(a, of+"answer"); s != "at_once" {
			r.fail(a, "%sanswer: only at_once is known; leave it out to answer through the queue", of)
		}
		u.atOnce = true
	}
	if s := f["silence"]; s != nil {
		u.silence = r.flag(s, of+"silence")
	}
	if h := f["hand_over"]; h != nil {
		r.handOver(h, u, of+"hand_over")
	}
	if c := f["call"]; c != nil {
		u.call = r.call(c, of+"call", known, u.scope(f))
	}
	if p := f["reply"]; p != nil {
		u.replies = r.replies(p, of+"reply", u.scope(f))
	}
	if count(u.silence, u.handOver, f["call"] != nil || f["reply"] != nil, r.otherActions(f) > 0) != 1 || r.otherActions(f) > 1 {
		r.fail(n, "%swrite exactly one of reply, call (with or without reply), hand_over: true or silence: true%s", of, otherActionNames())
	}
	if u.call == nil && r.otherActions(f) == 0 && f["fallback"] != nil && len(u.replies) == 0 {
		r.fail(f["fallback"], "%sfallback: it is never used without reply, call or bot: remove it", of)
	}
	r.atOnce(n, f, u, of)
	r.fits(f, u, of)
	r.unsendable(n, u, of)
}

func (r *reader) handOver(n *yaml.Node, u *rule, subject string) {
	if n.Kind == yaml.MappingNode {
		d := r.mapping(n, subject, "desk")["desk"]
		if d == nil {
			r.fail(n, "%s: write true, or {desk: agent@account}", subject)
			return
		}
		u.handOver = true
		if u.desk, _ = r.text(d, subject+": desk"); len(u.desk) > 64 || u.desk == "" || strings.ContainsAny(u.desk, " <>&]\n") {
			r.fail(d, "%s: desk: write the agent's account, such as agent@account", subject)
		}
		return
	}
	u.handOver = r.flag(n, subject)
}

// atOnce checks what only the acknowledgement can do, and what it cannot.
func (r *reader) atOnce(n *yaml.Node, f fields, u *rule, of string) {
	if u.handOver && !u.atOnce {
		r.fail(n, "%shand_over works in the acknowledgement only: add \"answer: at_once\"", of)
	}
	if !u.atOnce || u.handOver {
		return
	}
	if f["call"] != nil || len(u.replies) != 1 || u.replies[0].kind != "text" {
		r.fail(f["answer"], "%sanswer: at_once takes exactly one reply with a text, or hand_over; calls need time: remove answer", of)
		return
	}
	if t := u.replies[0].text; t != nil && (!t.static || t.each(fitsText) != nil) {
		r.fail(f["answer"], "%sanswer: at_once takes a text without {{ }} of at most %d bytes", of, MaxText)
	}
	for e := range u.match.events {
		if !interactive[e] {
			r.fail(f["answer"], "%sanswer: WeChat takes no answer to the event %q: remove answer", of, e)
		}
	}
}

func fitsText(t *tmpl) error {
	if len(t.source) > MaxText {
		return errTooMuch
	}
	return nil
}

// scope is what the rule's call and replies may name.
func (u *rule) scope(f fields) scope {
	return scope{answer: f["call"] != nil, steps: u.dialogue != nil, vars: u.variables()}
}

// fits refuses what needs the robot in an answer of the door, and questions
// before an action that has no use for the answers.
func (r *reader) fits(f fields, u *rule, of string) {
	for _, name := range []string{"dialogue", "limit"} {
		if f[name] != nil && (u.atOnce || u.silence || u.handOver) {
			r.fail(f[name], "%s%s: it goes with reply, call and engine, without answer: at_once: the door keeps no count and no dialogue", of, name)
		}
	}
	if u.dialogue != nil && u.external != nil {
		r.fail(f["dialogue"], "%sdialogue: an external engine asks its own questions: use engine: stay", of)
	}
	if u.dialogue != nil && u.bot != nil {
		r.fail(f["dialogue"], "%sdialogue: a bot is given the callback as it came and asks its own questions: remove dialogue", of)
	}
}

// unsendable refuses replies to a follower who has just left.
func (r *reader) unsendable(n *yaml.Node, u *rule, of string) {
	if len(u.replies) > 0 && len(u.match.events) == 1 && u.match.events["unsubscribe"] {
		r.fail(n, "%snothing can be sent after unsubscribe: use call without reply, or silence", of)
	}
}

func listOr(list []string, none string) string {
	if len(list) == 0 {
		return none
	}
	return strings.Join(list, ", ")
}
