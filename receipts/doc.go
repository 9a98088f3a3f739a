// Package receipts is the room that knows what became of every message.
//
//	receipts, repeats ────────▶ ┐                     ┌▶ GET /v1/messages, /v1/messages/{id}
//	                            ├▶ one row per message ┼▶ reports of failures, daily and on demand
//	pushes.*, replies (queued) ▶ ┘   (receipts/store)   └▶ POST /v1/messages:resend ─▶ pushes.*
//
// It learns what is queued from the very topics that the sender reads, in a
// consumer group of its own, so that intake and robot write to one place only
// (decisions.md D10). Outcomes, and what WeChat reports, arrive on the topic
// of receipts in any order.
//
// Invariants: an offset is committed after its rows are; a letter that nobody
// can read becomes a dead letter with a reason and stops nothing; a re-send is
// a new message that names the old one, goes out once per confirmation, and
// only for pushes.
//
// On failure: without the database nothing is read on, the queue keeps the
// news, and the API answers 503. Without the queue rows go stale and re-sends
// answer 503. Nothing is dropped in either case.
package receipts
