// Package credit keeps, for each follower, how many customer-service messages
// WeChat still takes and until when: the windows of wechat.md 4.2.
//
//	robot: callback worked ─ Note ─▶ writer ─▶ {account.openid}:credit, :said
//	sender: reply ready    ─ Take ─▶ granted, unknown, closed or used up
//	        answer         ─ Back, Learn
//
// Idea: what the follower does opens a window (a message: 5 within 48 hours; a
// menu, a scan, a follow: 3 within a minute); acts do not add up, a later one
// raises count and end to the larger value. One hash in Redis holds what is left
// (one string the last message that nobody has asked about yet), and a script takes
// from it before the request leaves, so that what WeChat would refuse is not sent
// and does not spend the quota of the day.
//
// Invariant: the ledger only ever advises. It refuses when it has seen the act
// that a reply answers and knows that the window is over or used up; whenever it
// does not know (Redis away or emptied, an act that it has not heard of yet) the
// message goes, and WeChat's answer (45015, 45047) corrects it. What is taken for a
// reply whose act is not there yet is a debt of that act. A message takes once,
// however often it asks, so that a crash between taking and sending costs nothing.
//
// On failure: Note never waits and never fails; what Redis does not take is
// dropped and counted. Take waits for one answer of Redis at most. Keys end an
// hour after their window.
package credit
