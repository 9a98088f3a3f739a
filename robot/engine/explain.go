package engine

import (
	"fmt"
	"strings"

	"tidegate/pkg/wire"
)

// Passed is a rule that was looked at and passed over.
type Passed struct {
	Rule string
	Line int
	Why  string
}

// Explain is DecideIn for people: it also tells which rules were passed over
// and why, in the order of the file. Inside a dialogue no rule is looked at.
func (r *Rules) Explain(c *wire.Callback, s Situation) (Decision, []Passed, error) {
	var passed []Passed
	sub := subjectOf(c)
	d, err := r.decide(c, s, func(u *rule, why string) {
		passed = append(passed, Passed{u.name, u.line, u.explain(c, sub, why)})
	})
	return d, passed, err
}

// Line is where the decision's rule stands in the file, or 0.
func (d *Decision) Line() int {
	if d.rule == nil {
		return 0
	}
	return d.rule.line
}

// AtOnce reports whether the decision's rule is answered by the door.
func (d *Decision) AtOnce() bool { return d.rule != nil && d.rule.atOnce }

// explain says in words which condition did not hold.
func (u *rule) explain(c *wire.Callback, s subject, why string) string {
	switch why {
	case "accounts":
		return "it is for other accounts"
	case "during":
		return fmt.Sprintf("outside the hours %s at %s", calendarNames(u.during), when(u.during, c))
	case "outside":
		return fmt.Sprintf("inside the hours %s at %s", calendarNames(u.outside), when(u.outside, c))
	case outsideShare:
		return fmt.Sprintf("the follower is not among the %v %% that the bot %s answers", float64(u.bot.share)*100/slots, u.bot.name)
	case "default":
		return "nobody can be answered after this event"
	case "message_type":
		return "the message_type is " + c.MsgType
	case "event":
		if c.MsgType != "event" {
			return "this is no event"
		}
		return "the event is " + c.Event
	}
	has := map[string]*string{"text": s.text, "menu_key": s.key, "scene": s.scene, "menu_item": s.menuItem}[why]
	if has == nil {
		return "there is no " + why
	}
	return "the " + why + " does not match"
}

func calendarNames(list []*calendar) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}

func when(list []*calendar, c *wire.Callback) string {
	return moment(c).In(list[0].zone).Format("Mon 2006-01-02 15:04 MST")
}
