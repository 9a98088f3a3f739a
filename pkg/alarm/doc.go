// Package alarm tells operations that something needs a person, and that it no
// longer does.
//
//	room ──Fire(alarm)──▶ ┐                    ┌▶ one log line
//	                      ├ Board: what fires ─┼▶ tidegate_alarm_firing
//	room ──Resolve(…)───▶ ┘    (transitions)   └▶ sinks
//
// An alarm is a condition with a name from a closed list and a subject (a queue,
// an account, a node). Rooms say what they see as often as they like; only a
// change reaches anybody, so a condition that lasts is one alarm and not one a
// second. What the board knows is this process's view and is gone with it: a
// condition that still holds after a start fires again.
package alarm
