package engine

import "tidegate/pkg/wire"

// Instant is an answer that fits into the acknowledgement: a static text, or
// the hand-over to the human desk (Desk names one agent, "" lets WeChat
// choose). Rule goes into Callback.Answered. It is an alias of an unnamed
// struct so that the door can declare the same type without importing the
// robot.
type Instant = struct {
	Rule     string
	Text     string
	HandOver bool
	Desk     string
}

// RuleFallback is the name under which the fallback text is answered.
const RuleFallback = "fallback"

// AtOnce finds what the door should answer in the acknowledgement; ok is
// false if it should only acknowledge. The order of the file counts here too:
// a rule that is not marked at_once and comes first keeps the callback for
// the robot. A quarantined callback gets the fallback text (D1). Types that
// WeChat lets nobody answer never get an answer, because one to LOCATION, for
// instance, counts as a broken account (wechat.md 2).
func (r *Rules) AtOnce(c *wire.Callback) (Instant, bool) {
	if c.Quarantined != "" {
		text := r.FallbackFor(c)
		return Instant{Rule: RuleFallback, Text: text}, text != ""
	}
	if !answerable(c) {
		return Instant{}, false
	}
	s := subjectOf(c)
	u, _ := r.find(c, s, nil)
	if u == nil || !u.atOnce {
		return Instant{}, false
	}
	a := Instant{Rule: u.name, HandOver: u.handOver, Desk: u.desk}
	if !u.handOver {
		a.Text = u.replies[0].text.said(r.langs.of(c, s, ""))
	}
	return a, true
}

// interactive are the events that a follower causes knowingly and that may be
// answered.
var interactive = map[string]bool{
	"subscribe": true, "SCAN": true, "CLICK": true, "scancode_push": true, "scancode_waitmsg": true,
}

// keyed are the events of a menu button that has a key of the developer's.
var keyed = map[string]bool{
	"CLICK": true, "scancode_push": true, "scancode_waitmsg": true,
	"pic_sysphoto": true, "pic_photo_or_album": true, "pic_weixin": true, "location_select": true,
}

// answerable reports whether an answer to the callback can reach the follower
// because of the callback itself. A message type of the future counts as a
// message: WeChat opens the window for every message.
func answerable(c *wire.Callback) bool {
	if c.MsgType != "event" {
		return c.MsgType != ""
	}
	return interactive[c.Event]
}
