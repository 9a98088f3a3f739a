package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"tidegate/test/chaos/history"
)

// foldDriver turns the deliveries into causes, and judges every answer on the
// way.
func (c *checker) foldDriver() {
	identities := map[string]int{}
	for i, e := range c.events {
		switch e.Kind {
		case history.Invoke:
			c.invoke(i, e, identities)
		case history.OK, history.Fail, history.Unknown:
			c.end(i, e)
		case history.Fault:
			c.r.Faults[e.What]++
			c.calm = max(c.calm, e.Wall)
		case history.Logged, history.Reply, history.Note:
		default:
			c.find("C0", "broken history", e.Token, fmt.Sprintf("%q is no kind of event", e.Kind), i)
		}
	}
	for _, token := range c.tokens {
		for _, at := range slices.Sorted(maps.Values(c.causes[token].open)) {
			c.find("C0", "broken history", token, "a delivery has no end", at)
		}
	}
}

func (c *checker) invoke(i int, e history.Event, identities map[string]int) {
	ca := c.causes[e.Token]
	if ca == nil {
		ca = newCause(e, i)
		c.causes[e.Token] = ca
		c.tokens = append(c.tokens, e.Token)
		c.r.Causes++
		if e.Identity != "" {
			if other, twice := identities[e.Identity]; twice {
				c.find("C0", "broken history", e.Token, "two causes have one identity", other, i)
			}
			identities[e.Identity] = i
		}
	}
	switch {
	case e.Token == "" || e.Account == "" || e.OpenID == "":
		c.find("C0", "broken history", e.Token, "an invoke without token, account or openid", i)
	case ca.account != e.Account || ca.openid != e.OpenID:
		c.find("C0", "broken history", e.Token, "deliveries of one cause differ in account or openid", ca.begun, i)
	case ca.seen[e.Delivery]:
		c.find("C0", "broken history", e.Token, fmt.Sprintf("delivery %d is made twice", e.Delivery), ca.begun, i)
	}
	ca.seen[e.Delivery], ca.open[e.Delivery] = true, i
	c.r.Deliveries++
}

func (c *checker) end(i int, e history.Event) {
	ca := c.causes[e.Token]
	if ca == nil {
		c.find("C0", "broken history", e.Token, "an answer to nothing", i)
		return
	}
	begun, open := ca.open[e.Delivery]
	if !open {
		c.find("C0", "broken history", e.Token, fmt.Sprintf("delivery %d has no open invoke", e.Delivery), ca.begun, i)
		return
	}
	delete(ca.open, e.Delivery)
	c.r.Answers[e.Answer]++
	if c.answer(begun, i, e) && ca.acked < 0 {
		ca.acked, ca.ackInvoke = i, begun
		c.r.Acked++
	}
}

// answer judges one answer (C12, and the limit of C8) and tells whether it is
// an ack.
func (c *checker) answer(begun, i int, e history.Event) bool {
	ack := e.Answer == history.Success || e.Answer == history.Empty || e.Answer == history.Passive
	switch {
	case ack && e.Kind == history.OK && e.Status == 200:
		c.r.latencies = append(c.r.latencies, e.Latency)
		if e.Latency >= c.opt.AckLimit {
			c.find("C8", "late", e.Token, fmt.Sprintf("acked after %s, the limit is %s", e.Latency, c.opt.AckLimit), begun, i)
		}
		return true
	case e.Answer == history.Refused && e.Kind == history.Fail && e.Status == 503:
		if !c.opt.Refusals {
			c.find("C12", "refused", e.Token, "503, which this run does not allow", begun, i)
		}
	case e.Answer == history.None && (e.Kind == history.Unknown || e.Kind == history.Fail && e.Status == 0):
		if !c.opt.Silence {
			c.find("C12", "silent", e.Token, "no answer: "+e.Text, begun, i)
		}
	default:
		c.find("C12", "malformed", e.Token, fmt.Sprintf("%s %d %s is outside G2: %s", e.Kind, e.Status, e.Answer, e.Text), begun, i)
	}
	return false
}

// acks closes the books over all acks (C8).
func (c *checker) acks() {
	l := c.r.latencies
	if len(l) == 0 {
		return
	}
	slices.Sort(l)
	rank := func(p int) time.Duration { return l[(len(l)*p+99)/100-1] } // nearest rank
	c.r.P50, c.r.P99, c.r.Worst = rank(50), rank(99), l[len(l)-1]
	if c.opt.P99 > 0 && c.r.P99 > c.opt.P99 {
		c.find("C8", "late", "", fmt.Sprintf("p99 of %d acks is %s, the limit is %s", len(l), c.r.P99, c.opt.P99))
	}
}
