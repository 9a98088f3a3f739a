// Package store keeps one row per message and the story behind it, in
// PostgreSQL or SQLite.
//
//	news (outcome, event, queued letter) ──▶ Apply ──▶ messages + steps + tallies
//	                                            │
//	               event without a row ──▶ parked ──▶ joined when the outcome
//	                                                  brings the msg_id, else foreign
//
// Invariants: the order in which news arrives, and how often, changes nothing
// about where a row ends (wire.Move decides; T51, T53, G20); a row never goes
// back; of two contradictory ends the first stays and the row is flagged;
// equal ids with different identity hashes are different messages, kept as
// variants of the id; the tallies equal the rows after every commit (G30).
//
// On failure a batch has no effect, or, when the answer of the commit was
// lost, its full effect; in both cases applying it again is right.
package store
