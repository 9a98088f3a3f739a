package check

import (
	"fmt"
	"strings"

	"tidegate/test/chaos/history"
)

// foldEffects gives the indexes of the effects in the order in which they took
// place: records by partition and offset, replies as the users saw them.
func (c *checker) foldEffects() (log, replies []int) {
	type place struct {
		topic     string
		partition int32
	}
	last := map[place]int{}
	shown := -1
	for i, e := range c.events {
		switch e.Kind {
		case history.Logged:
			c.r.Records++
			if e.Timestamp <= 0 {
				c.find("C0", "broken history", e.Token, "a record without a time", i)
			}
			p := place{e.Topic, e.Partition}
			before, known := last[p]
			last[p] = i
			log = append(log, i)
			want := int64(0)
			if known {
				want = c.events[before].Offset + 1
			} else {
				before = -1
			}
			switch {
			case e.Offset < want:
				c.find("C0", "nonmonotonic poll", e.Token, "an offset was read again, or after a later one", some(before, i)...)
			case e.Offset > want:
				c.find("C0", "poll skip", e.Token, fmt.Sprintf("the log was not read from %d to %d", want, e.Offset-1), some(before, i)...)
			}
		case history.Reply:
			c.r.Replies++
			if shown >= 0 && c.events[shown].Order >= e.Order {
				c.find("C0", "nonmonotonic poll", e.Token, "replies are not in the order in which they were seen", shown, i)
			}
			shown = i
			replies = append(replies, i)
		}
	}
	return log, replies
}

// effects judges one kind of effects in their order. Records of one user are in
// one partition, so reading partition by partition keeps their order.
func (c *checker) effects(list []int, kind string) {
	users := map[string]*user{}
	ids := map[string]int{} // id to its first record
	for _, i := range list {
		e := c.events[i]
		ca := c.causes[e.Token]
		if ca == nil {
			c.find("C7", "invented", e.Token, "a "+kind+" that no callback has caused", i)
			continue
		}
		if !c.directed(ca, i, e) {
			continue // it is no effect of its cause
		}
		first := &ca.record
		if kind == "reply" {
			first = &ca.reply
		} else {
			c.identity(ca, i, e, ids)
		}
		if *first >= 0 {
			c.duplicate(ca, kind, *first, i)
			continue
		}
		*first = i
		k := key(ca.account, ca.openid)
		if users[k] == nil {
			users[k] = &user{partition: i, latest: -1}
		}
		c.order(users[k], ca, i, e)
	}
}

// directed checks that an effect went where its cause came from (C7).
func (c *checker) directed(ca *cause, i int, e history.Event) bool {
	switch {
	case e.Account != ca.account, e.Kind == history.Logged && !strings.HasSuffix(e.Topic, "."+ca.account+".callbacks"):
		c.find("C7", "cross-account", e.Token, fmt.Sprintf("caused in account %s, took effect in %s %s", ca.account, e.Account, e.Topic), ca.begun, i)
	case e.OpenID != ca.openid, e.Kind == history.Logged && e.Key != ca.openid:
		c.find("C7", "misdirected", e.Token, fmt.Sprintf("caused by %s, took effect for %s %s", ca.openid, e.OpenID, e.Key), ca.begun, i)
	default:
		return true
	}
	return false
}

// identity checks that a cause has one id, and no other cause has it.
func (c *checker) identity(ca *cause, i int, e history.Event, ids map[string]int) {
	if ca.id == "" {
		ca.id = e.ID
	}
	other, known := ids[e.ID]
	if !known {
		ids[e.ID] = i
	}
	switch {
	case ca.id != e.ID:
		c.find("C2", "split identity", ca.token, "one cause is in the log under two ids", some(ca.begun, ca.record, i)...)
	case known && c.events[other].Token != ca.token:
		c.find("C2", "merged", ca.token, "two causes are in the log under one id", ca.begun, other, i)
	}
}

func (c *checker) duplicate(ca *cause, kind string, first, i int) {
	if kind == "record" {
		c.r.Doubled++
		if c.opt.Doubles {
			return
		}
	}
	c.find("C2", "duplicate", ca.token, "a second "+kind+" of one cause", append(ca.shown(), first, i)...)
}

// user is what order remembers of one follower.
type user struct {
	partition int // an effect that tells it
	// latest is the cause with an effect that was sent last, by its first invoke.
	latest int
	cause  *cause
}

// order compares a first effect with all earlier ones of the user at once: it
// is enough to look at the cause that was sent last (C3).
func (c *checker) order(u *user, ca *cause, i int, e history.Event) {
	if p := c.events[u.partition]; p.Partition != e.Partition || p.Topic != e.Topic {
		c.find("C3", "split key", ca.token, fmt.Sprintf("records of one user in partitions %d and %d", p.Partition, e.Partition), u.partition, i)
		return
	}
	if u.cause != nil && ca.acked >= 0 && c.events[ca.acked].At < c.events[u.latest].At {
		effect := u.cause.record
		if e.Kind == history.Reply {
			effect = u.cause.reply
		}
		c.find("C3", "inversion", ca.token, "acked before "+u.cause.token+" was sent, took effect after it", append(ca.shown(), u.latest, effect, i)...)
	}
	if u.latest < 0 || c.events[ca.begun].At > c.events[u.latest].At {
		u.latest, u.cause = ca.begun, ca
	}
}

// settled looks for what every acked cause must have by now: C1, and the
// deadline of C8.
func (c *checker) settled() {
	for _, token := range c.tokens {
		ca := c.causes[token]
		if ca.acked < 0 {
			if ca.record >= 0 {
				c.r.Unacked++
			}
			continue
		}
		switch {
		case ca.record < 0:
			c.find("C1", "lost", token, "acked, and not in the log", ca.shown()...)
			continue
		case c.opt.Replies && ca.reply < 0:
			c.find("C1", "lost", token, "acked, and not answered", append(ca.shown(), ca.record)...)
			continue
		}
		c.inTime(ca, ca.record, c.events[ca.record].Timestamp)
		if ca.reply >= 0 {
			c.inTime(ca, ca.reply, c.events[ca.reply].Timestamp)
		}
	}
}

// inTime compares wall times in ms: records carry no other.
func (c *checker) inTime(ca *cause, effect int, at int64) {
	since := max(c.calm, c.events[ca.acked].Wall)
	if late := at - since; late > c.opt.SettleLimit.Milliseconds() {
		c.find("C8", "late effect", ca.token, fmt.Sprintf("took effect %d ms after its ack and the last fault, the limit is %s", late, c.opt.SettleLimit),
			append(ca.shown(), effect)...)
	}
}
