package engine

import (
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// maxMaxAge bounds max_age: WeChat takes no answer after its longest window.
const maxMaxAge = DefaultValidFor

func (r *reader) level(n *yaml.Node, u *rule, of string, _ Known) {
	s, _ := r.text(n, of+"level")
	if u.urgency.level, u.urgency.named = levelOf(s); !u.urgency.named {
		r.fail(n, "%slevel: %q is none: write one of %s; the last is refused first", of, cut(s, 64), strings.Join(levelNames[:], ", "))
	}
}

func (r *reader) maxAge(n *yaml.Node, u *rule, of string, _ Known) {
	u.urgency.maxAge = r.duration(n, of+"max_age", time.Second, maxMaxAge)
}

func (r *reader) onExpired(n *yaml.Node, u *rule, of string, _ Known) {
	u.urgency.expireQuietly = r.quietly(n, of+"on_expired", "fallback")
	if u.urgency.maxAge == 0 {
		r.fail(n, "%son_expired: it is never looked at without max_age: add max_age, or remove it", of)
	}
}

func (r *reader) busy(n *yaml.Node, u *rule, of string, _ Known) {
	u.urgency.busy = r.staticText(n, of+"busy")
}

func (r *reader) onBusy(n *yaml.Node, u *rule, of string, _ Known) {
	u.urgency.busyQuietly = r.quietly(n, of+"on_busy", "text")
	if u.urgency.busyQuietly && u.urgency.busy != nil {
		r.fail(n, "%son_busy: silence and the text of busy contradict each other: remove one", of)
	}
}

// quietly reads a choice between a text and silence.
func (r *reader) quietly(n *yaml.Node, subject, loud string) bool {
	s, _ := r.text(n, subject)
	if s != loud && s != "silence" {
		r.fail(n, "%s: write %s or silence", subject, loud)
	}
	return s == "silence"
}
