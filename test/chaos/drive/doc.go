// Package drive is WeChat in front of the doors: it delivers callbacks at a rate
// that does not wait for answers, repeats them as WeChat does, and writes down
// what it did and what it was told.
//
// Idea. Arrivals follow a plan; the time of an answer counts from the planned
// moment, so that a driver that is late makes the result worse and never better.
// Each delivery has a fresh timestamp, nonce, signature and cipher text around
// the same document. A load balancer stands inside: it chooses the door by the
// openid, or at random, and takes the next one only if a door does not take the
// connection, as nginx does with a POST.
//
// Invariants. A delivery's invoke is in the history before its first byte goes
// out, and exactly one of ok, fail and unknown follows. Nothing is answered in
// the place of a door: a door that cannot be reached is a fail without status.
//
// Failure. What cannot be offered because too much is in flight is counted as
// skipped and must be looked at by the test: the plan was not kept.
package drive
