// Package alarm tells operations that something needs a person, and that it no
// longer does.
//
//	room ──Fire(alarm)──▶ ┐                    ┌▶ one log line
//	                      ├ Board: what fires ─┼▶ tidegate_alarm_firing, GET /ops/v1/alarms
//	room ──Resolve(…)───▶ ┘    (transitions)   └▶ Herald ─┬▶ queue ▶ webhook
//	                                              │       └▶ queue ▶ webhook
//	                            other nodes ◀── Redis
//
// An alarm is a condition with a name from a closed list and a subject (a queue,
// an account). Rooms say what they see as often as they like; only a change
// reaches anybody, so a condition that lasts is one alarm and not one a second.
// What the board knows is this process's view and is gone with it: a condition
// that still holds after a start fires again. Fire and Resolve never wait for
// anything but a lock.
//
// # Told once over all nodes
//
// Several nodes see the same condition. Each that does gives its word in Redis,
// again every 30 s, and a word lapses after 90 s:
//
//   - The first to give its word tells; those that follow find that somebody was
//     told and are silent.
//   - While it fires it is told again every repeat_every, by whoever finds that
//     this time is over.
//   - A node that sees the end takes its word back. The last one tells that it is
//     resolved: a node whose check runs a second later does not contradict it.
//   - A node that dies is forgotten when its word lapses; what it saw is marked.
//   - Redis away: each node tells for itself, firing and resolved. Twice is
//     better than never. When Redis is back, what was told is not told again.
//
// Alarms marked Local are a condition of one process (its disk): each tells its
// own, and messages name the node.
//
// # Ends that fell into a restart
//
// Whatever fires also has a mark in one hash in Redis, with the time at which a
// process asserted it last; telling the end removes it. Two minutes after its
// start a process looks at the marks that nobody asserts any more. Those that
// processes of its own role left, and, of Local alarms, its own role on its own
// host, it would see if they still held: it takes the mark away and tells that
// they are over. Of several that notice, the one that takes the mark tells.
//
// This cannot help where there is no Redis (nothing outlives the process), while
// Redis is away at the start (it is done when it is back), and for a role, or a
// host with Local alarms, that never starts again: its marks are forgotten after
// a week, in silence. An end that was told while Redis was away is told a second
// time by whoever starts next.
//
// # Delivery
//
// Each webhook has a bounded queue and a goroutine; a message is tried for about
// a minute with growing pauses. What cannot be queued or delivered is logged and
// counted (tidegate_alarm_messages_total), never waited for. Group robots that
// answer 200 with an error code have not taken the message. A clean stop delivers
// what is queued, for three seconds at most.
package alarm
