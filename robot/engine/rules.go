package engine

import (
	"fmt"
	"time"

	"tidegate/pkg/wire"
)

// Rules are the rules of all accounts, in order. They are immutable and safe
// for concurrent use.
type Rules struct {
	file     string
	fallback string
	list     []*rule
}

// rule is one entry of the file, checked and compiled.
type rule struct {
	name     string
	line     int
	accounts map[string]bool // nil: every account
	match    matcher
	atOnce   bool
	handOver bool
	desk     string
	silence  bool
	replies  []reply
	call     *call
	class    string
	fallback string
	validFor time.Duration
}

// Decision is what one rule wants for one callback.
type Decision struct {
	Rule     string         // name, or "" when no rule matched
	Replies  []wire.Content // in order; empty means silence, unless Call is set
	Call     *Call          // ask a back end first, then Render its answer
	Class    string         // wire.PreferDuplicate or wire.PreferLoss
	Fallback string         // text for the case that the work fails; may be ""
	ValidFor time.Duration  // how long a reply may wait to be sent
	Notes    []string       // what was adapted, e.g. a text that was cut
	// NotHere says why a matching rule could not be followed by the robot
	// although nothing failed, or "".
	NotHere string

	rule *rule
	data *data
}

// Fallback is the text that is sent when a callback cannot be worked at all
// and no rule has a text of its own; "" if the file gives none.
func (r *Rules) Fallback() string { return r.fallback }

// Len is the number of rules.
func (r *Rules) Len() int { return len(r.list) }

// Backends lists the names of the back ends that rules call, each once, in
// order of appearance.
func (r *Rules) Backends() []string {
	var out []string
	seen := map[string]bool{}
	for _, u := range r.list {
		if u.call != nil && !seen[u.call.backend] {
			seen[u.call.backend] = true
			out = append(out, u.call.backend)
		}
	}
	return out
}

// find gives the first rule that matches, with the groups of its regular
// expression.
func (r *Rules) find(c *wire.Callback) (*rule, []string) {
	s := subjectOf(c)
	for _, u := range r.list {
		if u.accounts != nil && !u.accounts[c.Account] {
			continue
		}
		if ok, groups := u.match.matches(s); ok {
			return u, groups
		}
	}
	return nil, nil
}

// Decide finds the rule for a callback and renders what can be rendered
// without a back end. On an error the decision still names the rule and its
// fallback text.
func (r *Rules) Decide(c *wire.Callback) (d Decision, err error) {
	d.Fallback, d.Class, d.ValidFor = r.fallback, wire.PreferDuplicate, DefaultValidFor
	u, groups := r.find(c)
	if u == nil {
		return d, nil
	}
	d.Rule, d.Class, d.ValidFor, d.rule = u.name, u.class, u.validFor, u
	if u.fallback != "" {
		d.Fallback = u.fallback
	}
	d.data = dataOf(c, groups)
	switch {
	case u.handOver:
		// Only the acknowledgement can hand a user over; this one went out
		// without it, because the door held other rules at that moment.
		d.NotHere = "hand_over is possible in the acknowledgement only"
		return d, nil
	case u.silence:
		return d, nil
	case u.call != nil:
		d.Call, err = u.call.prepare(d.data)
		if err != nil {
			return d, fmt.Errorf("rule %q: prepare call: %w", u.name, err)
		}
		return d, nil
	}
	err = d.render()
	return d, err
}

// Render makes the replies of a decision with Call set from the back end's
// answer: JSON as decoded by package backend, or nil for an empty answer. It
// changes Replies and Notes.
func (d *Decision) Render(answer any) error {
	if d.rule == nil || d.rule.call == nil {
		return fmt.Errorf("render answer: the decision has no call")
	}
	d.data.Answer = answer
	return d.render()
}

func (d *Decision) render() error {
	d.Replies, d.Notes = nil, nil
	for i := range d.rule.replies {
		content, note, err := d.rule.replies[i].render(d.data)
		if err != nil {
			d.Replies = nil
			return fmt.Errorf("rule %q: reply %d: %w", d.rule.name, i+1, err)
		}
		if note != "" {
			d.Notes = append(d.Notes, fmt.Sprintf("reply %d %s", i+1, note))
		}
		if content != nil {
			d.Replies = append(d.Replies, *content)
		}
	}
	return nil
}
