package wechatsim

import "fmt"

// maxAnomalies bounds the details kept; the counts go on.
const maxAnomalies = 50

func (j *Judge) addArrival(e Entry) {
	use := j.v.API[e.What]
	use.Calls++
	if e.Errcode != 0 {
		if use.Errors == nil {
			use.Errors = map[int]int64{}
		}
		use.Errors[e.Errcode]++
	}
	if e.Fault != "" {
		use.Faults++
	}
	j.v.API[e.What] = use
	switch e.What {
	case PathCustomSend:
		j.addReply(e)
	case PathTemplateSend, PathBizSend:
		j.addPush(e)
	}
}

// addReply judges a customer-service message. Wrong targets are counted for
// every attempt, also refused ones; effects only where WeChat acted.
func (j *Judge) addReply(e Entry) {
	if e.Account == "" {
		return // no good token: WeChat does not know who asked, and nothing happened
	}
	known := false
	for _, token := range e.Tokens {
		c := j.causes[token]
		if c == nil {
			continue
		}
		known = true
		switch {
		case c.account != e.Account:
			j.v.Replies.CrossAccount++
			j.note("cross_account", e, token, "the cause belongs to account "+c.account)
		case c.openid != e.OpenID:
			j.v.Replies.Misdirected++
			j.note("misdirected", e, token, "the cause belongs to user "+c.openid)
		case e.Applied:
			j.effect(c, e)
		case forGood(e.Errcode):
			j.refuse(c)
		}
	}
	if known {
		return
	}
	if u := j.users[userKey(e)]; len(e.Tokens) == 0 && u != nil && u.untracked > 0 {
		j.v.Replies.Untracked++
		return
	}
	j.v.Replies.Invented++
	j.note("invented", e, "", "no callback of this user explains the reply")
}

// effect is one reply to c that WeChat carried out.
func (j *Judge) effect(c *cause, e Entry) {
	c.raw++
	allowed := max(c.wants, 1) * c.callbacks
	if c.raw > allowed {
		j.v.Replies.DoubledRaw++
	}
	if !e.Visible {
		return
	}
	c.visible++
	j.v.Replies.Visible++
	if c.visible > max(c.wants, 1) && c.visible <= allowed {
		j.v.Replies.ToRepeats++
	}
	if c.visible > allowed {
		j.v.Replies.Doubled++
		j.note("doubled", e, c.token, fmt.Sprintf("visible reply number %d, allowed %d; the first came at %d ns", c.visible, allowed, c.effect))
	}
	if c.visible >= c.wants {
		j.settle(c, answered)
	}
	if c.effect == 0 {
		c.effect = e.At
		j.order(c, e)
	}
}

// forGood tells refusals that no retry can change and that are the user's or the
// window's doing. Any other refusal leaves the cause unanswered.
func forGood(errcode int) bool {
	return errcode == errOutOfWindow || errcode == errCountUsedUp || errcode == errUserRefuses
}

// fate is what became of a cause that wants a reply.
type fate int

const (
	unacked fate = iota
	waiting
	answered
	refused
)

// settle moves an acked cause to its fate; a late reply outweighs a refusal.
func (j *Judge) settle(c *cause, to fate) {
	if c.fate == to {
		return
	}
	switch c.fate {
	case unacked, answered:
		return
	case waiting:
		delete(j.waiting, c)
	case refused:
		j.v.Replies.Refused--
	}
	c.fate = to
	if to == answered {
		j.v.Replies.Answered++
	} else {
		j.v.Replies.Refused++
	}
}

// refuse notes that WeChat refused the reply for good.
func (j *Judge) refuse(c *cause) {
	c.refused = true
	j.settle(c, refused)
}

// order holds the first effect of c against those of later messages of the same
// user. A message is later when it came into being after c's ack was complete;
// messages under way together have no order that a server could keep.
func (j *Judge) order(c *cause, e Entry) {
	u := j.user(e)
	if c.acked != 0 && u.latestAnswered >= c.acked {
		j.v.Replies.OutOfOrder++
		j.note("out_of_order", e, c.token, fmt.Sprintf(
			"acked at %d ns, but a message of %d ns was answered before it", c.acked, u.latestAnswered))
	}
	u.latestAnswered = max(u.latestAnswered, c.created)
}

// passive is an answer that came inside an ack. The delivery names its cause, so
// text without the mark still counts as an answer, but not as the reply.
func (j *Judge) passive(c *cause, e Entry) {
	if !contains(e.Tokens, c.token) {
		j.v.Replies.Notices++
		if !c.noticed {
			c.noticed = true
			j.settle(c, answered)
		}
		return
	}
	j.v.Replies.Passive++
	e.Visible = e.Visible && e.Applied
	j.effect(c, e)
}

func (j *Judge) addPush(e Entry) {
	j.v.Pushes.Raw++
	if e.Applied && !e.Visible {
		j.v.Pushes.Absorbed++
	}
	announced := j.announced(e)
	if !e.Visible {
		return
	}
	j.v.Pushes.Visible++
	again := false
	if e.ClientMsgID != "" {
		again = j.again(e)
	}
	for _, x := range announced {
		x.visible++
		again = again || x.visible > 1
	}
	if again {
		j.v.Pushes.Doubled++
		j.note("push_doubled", e, "", "the user sees this push again; client_msg_id "+e.ClientMsgID)
	}
}

// again counts a visible push by user and client_msg_id.
func (j *Judge) again(e Entry) bool {
	key := e.Account + "\x00" + e.OpenID + "\x00" + e.ClientMsgID
	n, known := j.pushes[key]
	if !known && j.full() {
		j.v.Journal.Unfollowed++
		return false
	}
	j.pushes[key] = n + 1
	return n > 0
}

func (j *Judge) announced(e Entry) []*expectedPush {
	var out []*expectedPush
	for _, token := range e.Tokens {
		x := j.expected[token]
		if x == nil {
			continue
		}
		if x.account != e.Account || x.openid != e.OpenID {
			j.v.Pushes.Misdirected++
			j.note("push_misdirected", e, token, "announced for user "+x.openid+" of account "+x.account)
			continue
		}
		out = append(out, x)
	}
	return out
}

func (j *Judge) addExpect(e Entry) {
	for _, token := range e.Tokens {
		if j.full() {
			j.v.Journal.Unfollowed++
			return
		}
		j.v.Pushes.Expected++
		j.expected[token] = &expectedPush{account: e.Account, openid: e.OpenID, seq: e.Seq, at: e.At}
	}
}

func (j *Judge) note(kind string, e Entry, token, detail string) {
	if len(j.v.Anomalies) < maxAnomalies {
		j.v.Anomalies = append(j.v.Anomalies, Anomaly{
			Kind: kind, Seq: e.Seq, At: e.At, Account: e.Account, OpenID: e.OpenID, Token: token, Detail: detail,
		})
	}
}
