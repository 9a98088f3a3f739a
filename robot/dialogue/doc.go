// Package dialogue keeps where followers' dialogues stand: one record in Redis
// for each follower who is in one or has just left one.
//
//	callback ─ Open ─▶ Place{State, Seen} ─ engine ─▶ new state ─ Move ─▶ only then: calls, replies, commit
//
// Working a callback twice moves a dialogue once and decides the same. A record
// holds the state that the last callback made, the id of that callback, and the
// state before it. Three cases follow, and no more, because callbacks of a
// follower are worked in order and one begins only when everything of the one
// before is durable:
//
//   - the callback is newer than the record: it finds the state;
//   - it is the record's own callback, delivered again after a crash: it finds
//     the state before, decides as it did, and writes the same again;
//   - it is older (its offset says so) or one of the last that moved the
//     dialogue: all that it caused is durable, so there is nothing left to do
//     (Seen). To decide it with today's state would be the wrong branch.
//
// A callback that gets no turn after it has moved the dialogue (the line of a back
// end refuses it) moves it back: its follower may give the same answer again.
//
// A record changes only from what Open read (compare and set), so a robot that
// has lost its partition cannot move a dialogue under its successor.
//
// On failure: without Redis nobody knows whether a follower is in a dialogue.
// Open and Move then give errors of kind Unavailable; the robot holds the
// follower's callbacks up to max_age and sends the fallback text, and never
// takes a guess. A Redis that has lost its data has ended all dialogues.
//
// What followers wrote is personal data: it is sealed with a key of the
// deployment (AES-256-GCM, bound to account and follower), bounded, never
// logged, and gone half an hour after the time for the next answer has passed.
package dialogue
