// Package robot works callbacks off: it reads them in order per follower, at a
// capped rate per account, decides by rules (robot/engine), asks business
// systems where a rule says so (robot/backend), and hands its replies to the
// sender through Kafka. It never talks to WeChat.
//
//	callbacks ─▶ decode ▸ seen before? ▸ terms ▸ permit ▸ engine ▸ [back end]
//	                                                 │
//	             replies, in ordinal order ◀─────────┤
//	             dead letter, if there is a reason ◀─┤
//	             one receipt, always, last ◀─────────┘   then the offset may go
//
// Invariants. Effects before the commit: a record counts as finished only
// after its replies and its receipt are durable, and only the contiguous
// finished low-water mark is committed (pkg/kafka). Every callback leaves
// exactly one kind of receipt: answered, not_answered or dead. Ids of replies
// are derived from the callback's id and the ordinal, so working a callback
// twice makes no second message. A reply goes to the follower who wrote and to
// nobody else: a record whose parts contradict each other is parked.
//
// Accounts are kept apart: each has its own member of the one consumer group,
// its own workers and its own permits, so that an account whose back end is
// slow cannot take the workers of another.
//
// Overload: terms (package engine) say how urgent a callback is. Whoever would wait
// for a permit for longer than that is worth is refused at once (line, places), the
// least urgent first.
//
// Dialogues: where a follower stands is read before the terms and kept before any
// effect (robot/dialogue), so that a callback which is worked again decides the
// same. Without Redis messages of accounts with dialogues are held, up to max_age.
//
// On failure: a rule or a back end that fails leads to the rule's fallback
// text, and without one to a dead receipt. Work that takes longer than max_age,
// or that panics, leads to the fallback text and a dead receipt. A record of
// which three processes have died is not begun a fourth time (robot/suspect);
// it ends in the same way. Whatever has a dead receipt is kept whole as a dead
// letter, and can be replayed. What cannot be published holds its key (not the
// partition) and is tried again with the same content; if replies are refused
// for longer than max_age while other topics can be written, the callback
// becomes a dead letter, because one follower must not wait for ever behind it.
// A record that nobody can read becomes a dead letter at once.
//
// Not promised: exactly one call to a back end. After a crash a callback is
// worked again, with the same Idempotency-Key.
package robot
