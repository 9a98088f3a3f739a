package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

const (
	defaultTimeout = 5 * time.Minute
	defaultTries   = 3
)

var variableName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// dialogue reads the questions of a rule.
func (r *reader) dialogue(n *yaml.Node, u *rule, of string, known Known) {
	of += "dialogue"
	f := r.mapping(n, of, "timeout", "cancel", "timed_out", "steps")
	d := &dialogue{timeout: defaultTimeout}
	u.dialogue = d
	if t := f["timeout"]; t != nil {
		d.timeout = r.duration(t, of+": timeout", minTimeout, maxTimeout)
	}
	r.cancel(f["cancel"], d, of+": cancel")
	if t := f["timed_out"]; t != nil {
		d.timedOut = r.replies(t, of+": timed_out", scope{})
	}
	list := f["steps"]
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 || len(list.Content) > maxQuestions {
		r.fail(n, "%s: steps: write a list of 1 to %d questions, each beginning with \"- ask:\"", of, maxQuestions)
		return
	}
	stored := map[string]bool{}
	d.stored = stored
	for name := range u.match.variables() {
		r.variable(n, name, "match", stored)
	}
	for _, v := range known.Vars {
		stored[v] = true
	}
	for i, item := range list.Content {
		d.steps = append(d.steps, r.step(item, fmt.Sprintf("%s: step %d", of, i+1), stored))
	}
	if len(stored) > maxVariables {
		r.fail(n, "%s: %d variables, at most %d are kept", of, len(stored), maxVariables)
	}
	d.shape = d.fingerprint()
}

// cancel reads how a follower leaves. Every dialogue can be left: without the
// key, by the usual words.
func (r *reader) cancel(n *yaml.Node, d *dialogue, subject string) {
	d.cancel = &words{fold: true, equals: []string{"取消", "退出", "cancel"}}
	d.left = []reply{{kind: "text", text: &tmpl{static: true, in: &inLanguages{first: r.first, by: map[string]*tmpl{
		"zh": {source: "已取消。", static: true}, r.first: cancelled(r.first),
		"en": {source: "Cancelled.", static: true},
	}}}}}
	if n == nil {
		return
	}
	f := r.mapping(n, subject, "words", "reply")
	if w := f["words"]; w != nil {
		d.cancel.equals = nil
		for _, s := range r.texts(w, subject+": words") {
			d.cancel.equals = append(d.cancel.equals, strings.ToLower(strings.TrimSpace(s)))
		}
	}
	if p := f["reply"]; p != nil {
		d.left = r.replies(p, subject+": reply", scope{})
	}
}

func cancelled(lang string) *tmpl {
	if strings.HasPrefix(lang, "zh") {
		return &tmpl{source: "已取消。", static: true}
	}
	return &tmpl{source: "Cancelled.", static: true}
}

// step reads one question. stored are the variables that earlier ones give; it
// adds its own.
func (r *reader) step(n *yaml.Node, of string, stored map[string]bool) step {
	f := r.mapping(n, of, "ask", "store", "regexp", "choices", "error", "tries", "gave_up", "when")
	s := step{tries: defaultTries}
	before := scope{steps: true, vars: stored}
	if f["ask"] == nil {
		r.fail(n, "%s: ask is missing: write the question, such as {text: …}", of)
	} else {
		s.ask = r.replies(f["ask"], of+": ask", before)
	}
	if w := f["when"]; w != nil {
		s.when = r.when(w, of+": when", stored)
	}
	if e := f["error"]; e != nil {
		s.wrong = r.replies(e, of+": error", before)
	}
	if g := f["gave_up"]; g != nil {
		s.gaveUp = r.replies(g, of+": gave_up", before)
	}
	if t := f["tries"]; t != nil {
		if err := t.Decode(&s.tries); err != nil || s.tries < 1 || s.tries > maxTries {
			r.fail(t, "%s: tries: write a number from 1 to %d", of, maxTries)
		}
	}
	if c := f["choices"]; c != nil {
		s.choices = r.choices(c, of+": choices")
	}
	r.storing(n, f, &s, of, stored)
	return s
}

// storing reads where the answer goes and what it must look like.
func (r *reader) storing(n *yaml.Node, f fields, s *step, of string, stored map[string]bool) {
	if p := f["regexp"]; p != nil {
		if s.choices != nil {
			r.fail(p, "%s: regexp: choices say already what is taken: remove one", of)
		}
		if whole := r.pattern(p, of+": regexp", false); whole != nil {
			s.pattern = regexp.MustCompile("^(?:" + whole.String() + ")$") // it compiled already; the whole answer must fit
			for _, name := range s.pattern.SubexpNames() {
				if name != "" {
					r.variable(p, name, of+": regexp", stored)
				}
			}
		}
	}
	if v := f["store"]; v != nil {
		s.store, _ = r.text(v, of+": store")
		r.variable(v, s.store, of+": store", stored)
	}
	if f["store"] == nil && (s.pattern == nil || !hasNames(s.pattern)) {
		r.fail(n, "%s: store is missing: name the variable for the answer", of)
	}
}

func hasNames(p *regexp.Regexp) bool {
	for _, name := range p.SubexpNames() {
		if name != "" {
			return true
		}
	}
	return false
}

func (r *reader) variable(n *yaml.Node, name, subject string, stored map[string]bool) {
	if !variableName.MatchString(name) {
		r.fail(n, "%s: variable %q: use up to 32 of a-z, 0-9 and _, beginning with a letter", subject, cut(name, 64))
	}
	stored[name] = true
}

// when reads a mapping from variables to the values for which a question is
// asked.
func (r *reader) when(n *yaml.Node, subject string, stored map[string]bool) map[string][]string {
	out := map[string][]string{}
	for _, p := range r.pairs(n, subject) {
		if !stored[p.key.Value] {
			r.fail(p.key, "%s: no step before stores %q", subject, cut(p.key.Value, 64))
		}
		out[p.key.Value] = r.texts(p.value, subject+": "+cut(p.key.Value, 64))
	}
	return out
}

// choices reads a mapping from values to the words for them; a value is a word
// for itself, and the id of a line in the question's menu.
func (r *reader) choices(n *yaml.Node, subject string) []choice {
	var out []choice
	seen := map[string]string{}
	for _, p := range r.pairs(n, subject) {
		c := choice{value: p.key.Value, words: []string{p.key.Value}}
		if p.value.Kind != yaml.ScalarNode || p.value.Value != "" {
			c.words = append(c.words, r.texts(p.value, subject+": "+cut(c.value, 64))...)
		}
		for i, w := range c.words {
			c.words[i] = narrow(w)
			key := strings.ToLower(c.words[i])
			if other, taken := seen[key]; taken && other != c.value {
				r.fail(p.value, "%s: %q stands for %q already", subject, cut(w, 64), cut(other, 64))
			}
			seen[key] = c.value
		}
		if len(c.value) > maxVariable || c.value == "" {
			r.fail(p.key, "%s: a value has 1 to %d bytes", subject, maxVariable)
		}
		out = append(out, c)
	}
	if len(out) == 0 || len(out) > maxWords {
		r.fail(n, "%s: give 1 to %d values, like {yes: [是, 好], no: [否]}", subject, maxWords)
	}
	return out
}

// fingerprint changes when stored answers or the number of a step would mean
// something else; a text may be mended while followers are in the middle.
func (d *dialogue) fingerprint() string {
	h := sha256.New()
	for _, s := range d.steps {
		var conditions []string
		for name, values := range s.when {
			conditions = append(conditions, fmt.Sprintf("%q=%q", name, values))
		}
		sort.Strings(conditions)
		fmt.Fprintf(h, "%q %v %q\n", s.store, s.pattern, conditions)
		for _, c := range s.choices {
			fmt.Fprintf(h, " %q\n", c.value)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// variables are the names that the rule's own expressions give.
func (m *matcher) variables() map[string]bool {
	out := map[string]bool{}
	for _, w := range [...]*words{m.menuItem, m.scene, m.key, m.text} {
		if w == nil || w.pattern == nil {
			continue
		}
		for _, name := range w.pattern.SubexpNames() {
			if name != "" {
				out[name] = true
			}
		}
		break
	}
	return out
}

// variables are the names that templates at the end of the rule may use; nil
// does not check.
func (u *rule) variables() map[string]bool {
	if u.dialogue == nil {
		return nil
	}
	return u.dialogue.stored
}

// swallowed names rules of the door that would take the answers out of a
// dialogue: the door answers without asking where a follower stands.
func (r *reader) swallowed(list []*rule, at *yaml.Node) {
	for _, door := range list {
		if !door.atOnce || door.match.only() {
			continue
		}
		for _, u := range list {
			if u.shape() != "" && (u.covers(door) || door.covers(u)) {
				r.fail(&yaml.Node{Line: door.line, Column: at.Column}, "rule %q: answer: at_once would take every answer out of the dialogue of rule %q in line %d, since the door knows no dialogues: name the texts that it is for, or remove answer", door.name, u.name, u.line)
				break
			}
		}
	}
}

// only reports whether the matcher is for certain messages only, or for events.
func (m *matcher) only() bool {
	switch {
	case m.events != nil || m.key != nil || m.scene != nil || m.menuItem != nil:
		return true
	case m.byDefault:
		return false
	case m.text != nil:
		return !m.text.any
	}
	return m.msgTypes != nil && !m.msgTypes["text"] && !m.msgTypes["voice"]
}
