package engine

import "tidegate/pkg/wire"

// Level says how much a callback matters when more comes than can be worked:
// lower numbers go first and are refused last (paper 000, G25).
type Level uint8

// The levels. There are few, so that whoever writes rules can tell them apart.
const (
	Vital     Level = iota // payments, bindings, and calls whose effect would be lost
	Query                  // somebody asked something and waits for the answer
	Event                  // something happened; an answer is friendly
	Marketing              // what may be missed
)

// Levels is the number of levels.
const Levels = 4

var levelNames = [Levels]string{"vital", "query", "event", "marketing"}

// String is the name in rules files and metrics.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return "unknown"
}

func levelOf(name string) (Level, bool) {
	for i, n := range levelNames {
		if n == name {
			return Level(i), true
		}
	}
	return 0, false
}

// levelOf gives the level of a callback by its rule, or by what it is: a message
// or a press of a menu button is a question, other events are events. A call
// without a reply is for the back end's sake and nobody would ask again, so it is
// refused last. Marketing is never guessed.
func (u *rule) levelOf(c *wire.Callback) Level {
	switch {
	case u == nil:
		return Event
	case u.urgency.named:
		return u.urgency.level
	case u.quiet():
		return Vital
	case c.MsgType == "event" && !keyed[c.Event]:
		return Event
	}
	return Query
}

// quiet reports whether the rule calls a back end and tells the follower nothing.
func (u *rule) quiet() bool { return u.call != nil && len(u.replies) == 0 && u.dialogue == nil }
