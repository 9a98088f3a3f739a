package engine

import "gopkg.in/yaml.v3"

// basicKeys are the keys of a rule that rule and action read themselves.
var basicKeys = []string{"name", "accounts", "match", "answer", "hand_over", "silence", "call", "reply", "class", "fallback", "valid_for"}

// ruleKey is a further key of a rule, with a file of its own for how it is
// read. read is called with the value before the rule's action is looked at.
type ruleKey struct {
	name string
	// action says that the key is what the rule does: it excludes call, reply,
	// hand_over, silence and every other action.
	action bool
	read   func(r *reader, n *yaml.Node, u *rule, of string, known Known)
}

// moreKeys are the further keys, in the order in which they are read.
var moreKeys = []ruleKey{
	{"require", false, (*reader).require},
	{"unbound", false, (*reader).unbound},
	{"level", false, (*reader).level},
	{"max_age", false, (*reader).maxAge},
	{"on_expired", false, (*reader).onExpired},
	{"busy", false, (*reader).busy},
	{"on_busy", false, (*reader).onBusy},
	{"during", false, (*reader).during},
	{"outside", false, (*reader).outside},
	{"dialogue", false, (*reader).dialogue},
	{"limit", false, (*reader).limit},
	{"engine", true, (*reader).engine},
	{"bot", true, (*reader).bot},
}

func ruleKeys() []string {
	names := append([]string{}, basicKeys...)
	for _, k := range moreKeys {
		names = append(names, k.name)
	}
	return names
}

func (r *reader) otherActions(f fields) (n int) {
	for _, k := range moreKeys {
		if k.action && f[k.name] != nil {
			n++
		}
	}
	return n
}

func otherActionNames() (names string) {
	for _, k := range moreKeys {
		if k.action {
			names += ", or " + k.name
		}
	}
	return names
}
