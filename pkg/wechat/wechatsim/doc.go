// Package wechatsim is a WeChat of one's own: it plays the followers, pushes
// their callbacks to a server under test, and answers the HTTP API that the
// server calls back. Bot developers use it instead of an account.
//
//	followers ─ say, press, scan ─▶ callback (signed, encrypted, repeated) ─▶ server under test
//	server under test ─ token, custom/send, template/send … ─▶ API ─▶ receipts as callbacks
//	                 both directions ─▶ journal ─▶ judge ─▶ verdict
//
// Idea. The simulator is written from the protocol, not from the client it
// tests: it shares only the four cryptographic primitives with pkg/wechat and
// has its own message writer, its own reader of passive replies and its own
// reading of API requests. A misunderstanding in the client therefore shows.
//
// Invariants. Every delivery and every API arrival is in the journal before
// anybody can learn its result, with monotonic time. The verdict is a fold over
// journal entries and knows nothing else. Business time (windows, tokens,
// quotas) follows a clock that can be moved; delivery limits are real time.
//
// Failure. The simulator never invents success: a stimulus that it cannot send,
// a journal that it cannot keep or a load that it cannot offer is counted and
// makes the verdict incomplete. Where WeChat's documents leave a point open
// there is a switch in Config.
package wechatsim
