package engine

import (
	"regexp"

	"gopkg.in/yaml.v3"
)

// Action is something that a follower did before, and what he was told: .Last in
// templates, the newest first.
type Action struct {
	ID    string `json:"id"`             // of the callback
	At    int64  `json:"at"`             // when it reached the door, Unix seconds
	What  string `json:"what"`           // the beginning of a text, or event and key
	Rule  string `json:"rule,omitempty"` // that took it
	State string `json:"state"`          // that it ended in
	Said  string `json:"said,omitempty"` // the beginning of the first reply
}

// Wants says what a rule has to know of the follower beside the callback.
type Wants struct {
	User bool // which business user he is: .User, or require: bound
	Last bool // what he did before: .Last
}

// wanted finds templates that name .User or .Last. One too many costs a look-up,
// so the field of another value that is called alike may count.
var wanted = regexp.MustCompile(`\{\{[^}]*\.(User|Last)\b`)

func wantsOf(n *yaml.Node) (w Wants) {
	for _, m := range wanted.FindAllStringSubmatch(n.Value, -1) {
		w.User = w.User || m[1] == "User"
		w.Last = w.Last || m[1] == "Last"
	}
	for _, c := range n.Content {
		of := wantsOf(c)
		w.User, w.Last = w.User || of.User, w.Last || of.Last
	}
	return w
}

// Wants is what any rule has to know of followers.
func (r *Rules) Wants() (w Wants) {
	for _, u := range r.list {
		w.User, w.Last = w.User || u.wants.User, w.Last || u.wants.Last
	}
	return w
}

// Limited lists the rules that a follower may cause so often only.
func (r *Rules) Limited() []string {
	return r.names(func(u *rule) string {
		if u.limit == nil {
			return ""
		}
		return u.name
	})
}

// require reads what a follower must be for the rule to do what it does.
func (r *reader) require(n *yaml.Node, u *rule, of string, _ Known) {
	if s, _ := r.text(n, of+"require"); s != "bound" {
		r.fail(n, "%srequire: write bound, or leave it out", of)
	}
	u.bound, u.wants.User = true, true
}

// unbound reads what a follower is told who is no business user yet.
func (r *reader) unbound(n *yaml.Node, u *rule, of string, _ Known) {
	u.unbound = r.replies(n, of+"unbound", scope{})
	if !u.bound {
		r.fail(n, "%sunbound: it is never used without \"require: bound\": add that, or remove it", of)
	}
}

// checkRequired refuses a requirement that cannot be met where it is looked at.
func (r *reader) checkRequired(n *yaml.Node, u *rule, of string) {
	switch {
	case !u.bound:
	case len(u.unbound) == 0:
		r.fail(n, "%srequire: say in unbound what a follower is told who is not bound, such as a link to bind", of)
	case u.atOnce:
		r.fail(n, "%srequire: the door does not know who is bound: remove answer", of)
	case u.silence || u.handOver:
		r.fail(n, "%srequire: it goes with reply, call, dialogue, engine or bot", of)
	}
}
