package wire

import (
	"fmt"
	"regexp"
	"strings"
)

// Topics builds topic names; this is the only place that does (D4).
//
//	<prefix>.<account>.callbacks | .replies | .pushes.realtime | .pushes.bulk
//	<prefix>.receipts | .repeats | .deadletters | .control
type Topics struct{ Prefix string }

// Partition counts of D4. They never change under a topic: a larger count is
// a new topic version with a drain, because keys would move (T23).
const (
	Partitions         = 12
	PartitionsEmbedded = 4
)

var (
	accountName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	prefixName  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,29}$`)
)

// ValidAccount reports whether name may be an account's name: it becomes part
// of topic names, URLs and Redis keys.
func ValidAccount(name string) bool {
	return accountName.MatchString(name) && name != "receipts" && name != "repeats" && name != "deadletters" && name != "control"
}

// ValidOpenID is S28's pattern, ^[A-Za-z0-9_-]{1,64}$. Everybody asks about every
// callback, so it is a loop.
func ValidOpenID(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// Validate checks the prefix.
func (t Topics) Validate() error {
	if !prefixName.MatchString(t.Prefix) {
		return fmt.Errorf("topic prefix %q: use 1 to 30 of a-z, 0-9 and -, beginning with a letter or digit", t.Prefix)
	}
	return nil
}

// Callbacks is the topic of an account's callbacks.
func (t Topics) Callbacks(account string) string { return t.Prefix + "." + account + ".callbacks" }

// Replies is the topic of an account's replies, the fastest lane.
func (t Topics) Replies(account string) string { return t.Prefix + "." + account + ".replies" }

// Pushes is the topic of an account's pushes of one lane.
func (t Topics) Pushes(account, lane string) string {
	return t.Prefix + "." + account + ".pushes." + lane
}

// Receipts, Repeats, DeadLetters and Control are shared by all accounts.
func (t Topics) Receipts() string    { return t.Prefix + ".receipts" }
func (t Topics) Repeats() string     { return t.Prefix + ".repeats" }
func (t Topics) DeadLetters() string { return t.Prefix + ".deadletters" }
func (t Topics) Control() string     { return t.Prefix + ".control" }

// Account finds the account in a topic's name, or "" for a shared topic.
func (t Topics) Account(topic string) string {
	rest, ok := strings.CutPrefix(topic, t.Prefix+".")
	if !ok {
		return ""
	}
	account, _, found := strings.Cut(rest, ".")
	if !found {
		return ""
	}
	return account
}

// OfAccount lists every topic of one account.
func (t Topics) OfAccount(account string) []string {
	return []string{t.Callbacks(account), t.Replies(account), t.Pushes(account, LaneRealtime), t.Pushes(account, LaneBulk)}
}

// Shared lists the topics of the whole deployment.
func (t Topics) Shared() []string {
	return []string{t.Receipts(), t.Repeats(), t.DeadLetters(), t.Control()}
}
