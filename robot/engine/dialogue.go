package engine

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"tidegate/pkg/wire"
)

// dialogue are the questions that a rule asks before it does what it does.
type dialogue struct {
	timeout  time.Duration
	cancel   *words
	left     []reply // after a cancel word
	timedOut []reply // in place of a default rule's answer; may be empty
	steps    []step
	stored   map[string]bool // the variables that templates may use
	shape    string          // changes with what answers mean, not with texts
}

// step asks for one answer.
type step struct {
	ask     []reply
	store   string // variable for the answer; "" if the expression names its groups
	pattern *regexp.Regexp
	choices []choice
	wrong   []reply // for an answer that does not fit; empty asks again
	tries   int
	gaveUp  []reply             // after the last try; empty is the fallback text
	when    map[string][]string // asked only if each variable has one of the values
}

// choice is one of the values that a step takes, and the words for it.
type choice struct {
	value string
	words []string
}

// State says where a follower's dialogue stands: all that the next decision
// needs of the messages before. It holds what the follower wrote.
type State struct {
	Rule  string            `json:"rule"`
	Shape string            `json:"shape"` // of the dialogue that it was made with
	Step  int               `json:"step"`
	Tries int               `json:"tries,omitempty"`
	Lang  string            `json:"lang,omitempty"`
	Vars  map[string]string `json:"vars,omitempty"`
	// At is when the callback that made it reached the door, in Unix
	// milliseconds.
	At int64 `json:"at"`
}

// Situation is what a decision depends on beside the rules and the callback.
type Situation struct {
	State    *State         // nil: no dialogue is open
	Language string         // the follower's own, if it is known
	Vars     map[string]any // variables for templates beside those of the dialogue
	User     string         // the business user, "" if the follower is not bound
	Last     []Action       // what the follower did before, the newest first
}

// speaks reports whether a callback can be an answer: events are not, so a
// menu button may be pressed in the middle of a dialogue.
func speaks(c *wire.Callback) bool { return c.MsgType != "event" }

// held finds the rule that a state belongs to. It gives nil if the rule or its
// questions are not what they were.
func (r *Rules) held(c *wire.Callback, s *State) *rule {
	u := r.byName[s.Rule]
	if u == nil || u.accounts != nil && !u.accounts[c.Account] || u.shape() != s.Shape {
		return nil
	}
	if u.dialogue != nil && (s.Step < 0 || s.Step >= len(u.dialogue.steps)) {
		return nil
	}
	return u
}

// shape is "" for rules that hold no dialogue.
func (u *rule) shape() string {
	switch {
	case u.dialogue != nil:
		return u.dialogue.shape
	case u.external != nil && u.external.stay > 0:
		return "engine"
	}
	return ""
}

// patience is how long the follower has for the next answer.
func (u *rule) patience() time.Duration {
	if u.dialogue != nil {
		return u.dialogue.timeout
	}
	return u.external.stay
}

func (s *State) expired(at time.Time, patience time.Duration) bool {
	return at.Sub(time.UnixMilli(s.At)) > patience
}

// begin opens the rule's dialogue with the variables that the first message
// gave, and asks the first question that these leave open.
func (d *Decision) begin(at time.Time) error {
	vars := d.rule.match.named(d.data.Match)
	for _, s := range d.rule.dialogue.steps { // what the message says must be good answers
		if said, ok := vars[s.store]; ok {
			if value, fits := s.value(said); fits {
				vars[s.store] = value
			} else {
				delete(vars, s.store)
			}
		}
	}
	return d.ask(&State{Rule: d.rule.name, Shape: d.rule.dialogue.shape, Step: -1, Lang: d.data.Lang, Vars: vars}, at)
}

// answer takes a message inside the dialogue.
func (d *Decision) answer(before *State, said *string, menuItem *string, at time.Time) error {
	u := d.rule
	next := &State{Rule: u.name, Shape: before.Shape, Step: before.Step, Lang: before.Lang, Tries: before.Tries, Vars: map[string]string{}}
	for k, v := range before.Vars {
		next.Vars[k] = v
	}
	st := &u.dialogue.steps[before.Step]
	if said != nil {
		if ok, _ := u.dialogue.cancel.match(*said); ok {
			return d.end("cancelled", u.dialogue.left)
		}
	}
	if !st.take(said, menuItem, next.Vars) {
		return d.again(next, st, at)
	}
	return d.ask(next, at)
}

// again asks the same question, or gives up.
func (d *Decision) again(next *State, st *step, at time.Time) error {
	if next.Tries++; next.Tries >= st.tries {
		if len(st.gaveUp) == 0 {
			d.Moves, d.State, d.Trail = true, nil, "gave up after the last try"
			if d.Fallback != "" {
				d.Replies = []wire.Content{{Type: "text", Text: d.Fallback}}
			}
			return nil
		}
		return d.end("gave up after the last try", st.gaveUp)
	}
	next.At = at.UnixMilli()
	d.share(next.Vars)
	replies := st.wrong
	if len(replies) == 0 {
		replies = st.ask
	}
	if err := d.render(replies); err != nil {
		return err
	}
	d.Moves, d.State, d.Trail = true, next, fmt.Sprintf("step %d, the answer does not fit, try %d of %d", next.Step+1, next.Tries, st.tries)
	return nil
}

// ask goes on to the next question, or to what the rule does at the end.
func (d *Decision) ask(next *State, at time.Time) error {
	steps := d.rule.dialogue.steps
	d.share(next.Vars)
	for i := next.Step + 1; i < len(steps); i++ {
		if _, known := next.Vars[steps[i].store]; known && steps[i].store != "" || !steps[i].asked(next.Vars) {
			continue
		}
		if err := d.render(steps[i].ask); err != nil {
			return err
		}
		next.Step, next.Tries, next.At = i, 0, at.UnixMilli()
		d.Moves, d.State, d.Trail = true, next, fmt.Sprintf("step %d is asked", i+1)
		return nil
	}
	d.data.Match = nil
	if err := d.finish(); err != nil {
		return err
	}
	d.Moves, d.State, d.Trail = true, nil, "the dialogue is complete"
	return nil
}

func (d *Decision) end(why string, replies []reply) error {
	if err := d.render(replies); err != nil {
		return err
	}
	d.Moves, d.State, d.Trail = true, nil, why
	return nil
}

// share shows the collected variables to templates.
func (d *Decision) share(vars map[string]string) {
	for k, v := range vars {
		d.data.keep(k, v)
	}
}

// asked reports whether the step's conditions on variables hold.
func (s *step) asked(vars map[string]string) bool {
	for name, values := range s.when {
		if !contains(values, vars[name]) {
			return false
		}
	}
	return true
}

// take stores an answer if it fits.
func (s *step) take(said, menuItem *string, vars map[string]string) bool {
	if menuItem != nil { // a line of a menu was pressed: its id is the value
		for _, c := range s.choices {
			if c.value == *menuItem {
				vars[s.store] = c.value
				return true
			}
		}
	}
	if said == nil {
		return false
	}
	value, ok := s.value(*said)
	if !ok {
		return false
	}
	if s.store != "" {
		vars[s.store] = value
	}
	if s.pattern != nil {
		groups := s.pattern.FindStringSubmatch(narrow(*said))
		for i, name := range s.pattern.SubexpNames() {
			if name != "" {
				vars[name] = groups[i]
			}
		}
	}
	return true
}

// value is what is stored for an answer. Without an expression or choices any
// text of a bearable length is one.
func (s *step) value(said string) (string, bool) {
	said = narrow(said)
	if said == "" || len(said) > maxVariable {
		return "", false
	}
	for _, c := range s.choices {
		for _, w := range c.words {
			if strings.EqualFold(said, w) {
				return c.value, true
			}
		}
	}
	switch {
	case s.choices != nil:
		return "", false
	case s.pattern == nil:
		return said, true
	}
	groups := s.pattern.FindStringSubmatch(said)
	if groups == nil {
		return "", false
	}
	for i, name := range s.pattern.SubexpNames() {
		if i > 0 && name == "" { // the first plain group is what matters of the answer
			return groups[i], true
		}
	}
	return said, true
}

// narrow trims an answer and turns the wide forms of ASCII, which Chinese
// keyboards write, into the usual ones.
func narrow(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r >= '！' && r <= '～':
			return r - '！' + '!'
		case r == '\u3000':
			return ' '
		}
		return r
	}, s))
}
