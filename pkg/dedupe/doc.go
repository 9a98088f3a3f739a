// Package dedupe remembers which deliveries are being worked and which are
// durable, so that WeChat's repeats are answered without being worked again.
//
// Idea: a mark per identity with two states. Whoever is first writes
// claimed:<own token>; when its record is durable it turns the mark into
// done:<token>; if it cannot make the record durable it removes the mark. The
// token makes a claim recognisable to its owner: after a lost reply, asking
// again finds the own token and not a "duplicate".
//
// Questions that are asked at the same time share a pipeline: one round trip
// serves many deliveries. Done marks travel with the claims.
//
// Invariant: a delivery is reported Duplicate only if some delivery of the same
// identity was made durable before. Every doubt (no answer, an answer too late,
// a claim that does not end) gives a verdict that lets the delivery through: a
// doubled record is absorbed later by derived ids and the sender's intent, a
// lost one never comes back.
//
// On failure: Redis away, slow or refusing costs at most Options.Budget, and
// after a few such failures a breaker answers Unchecked without asking, save for
// one probe a second. Marks may vanish (restart, failover): then repeats are
// Fresh again.
package dedupe
