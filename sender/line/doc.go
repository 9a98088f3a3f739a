// Package line chooses the way by which an account's calls go to WeChat (M3):
//
//	wechat.lines      telecom ── unicom ── dmz (through a proxy)
//	accounts[].lines  card: unicom, telecom        each account has its order
//	operator          card: dmz                    and may be moved by hand
//
// Idea. A line is a base URL of WeChat's and how to get there: directly, or
// through an HTTP proxy of a carrier. Whether a line can be reached is known by
// line, since it is the same for all accounts; which line is taken is decided by
// account, and so are the connections: a stuck account does not use up those of
// another one (T46).
//
// Invariants. A call goes to the next line only if on this one no connection came
// about: name, connection, TLS or proxy. What may have reached WeChat is never
// sent again here; the room decides that by D7. A line that was lost is taken
// again when it has answered for Hold without a break, so that one that comes and
// goes is not followed; while no other can be reached it is tried before. An
// operator's choice goes first while it can be reached: the switch by hand is no
// way to lose messages.
//
// On failure. A request that is lost on the way has its line probed without
// delay, on a connection of its own, so that a line whose packets vanish is left within
// the connection's time-out, and its old connections are dropped. When no line
// can be reached each is tried in turn, the room's brake spaces the tries out,
// and letters wait in the queue. A process that starts takes every line as good.
package line
