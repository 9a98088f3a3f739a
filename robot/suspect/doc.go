// Package suspect finds the record that kills the process. A panic is caught
// where it happens; a record that exhausts the memory, calls os.Exit in some
// library or makes the code hang until the watchdog ends the process takes
// everything with it, is read again by whoever gets the partition, and kills
// that one too (trap T18, D13).
//
// Idea. What a process had in hand when it died can only be known if it was
// written down before the work began. That is done in Redis, in one hash for
// each partition:
//
//	owner    the assignment that holds the partition; empty when it was let go in order
//	until    the first offset that no dead process can have touched
//	begun    kills, 0 or 1, that records of this span without an entry may have been in
//	<offset> "<kills so far, this one included> <assignment>", while the record is in hand
//
// A partition that was let go in order has nothing to hide: its records are not
// counted, and cost nothing. One that was not, or whose past is not known, is
// counted in the first window after the assignment: from the committed offset
// to the furthest record that a process may have begun. An entry goes when its
// record is settled. What an assignment finds there was in hand at a death: a
// suspect. Most processes die for reasons of their own, and most suspects are
// innocent: they are worked in company once more, each written down. Who was in
// hand at two deaths is worked alone, so that the next death names exactly one; at
// the third the record is condemned and not begun any more.
//
//	1st death  in company: nothing is known, or who was in hand
//	2nd death  in company, counted
//	3rd death  alone: this is the one
//
// So one death keeps nobody waiting, and several killers in one window cost two
// deaths together and one more each.
//
// Who is to be written down or cleared at the same time is so in one round trip.
//
// Invariants. A record that kills is begun at most three times. A record is
// condemned only if three processes in a row have died while it was, or may have
// been, in hand, and it was alone at the last one, or began it alone. Whoever
// returns is cleared.
//
// Alone means alone in this process: the others wait at the gate, for the time
// of one suspect or turn (5 s), and then have a turn of the same length.
//
// On failure. Redis away at an assignment: its deaths are not counted. Redis
// without its data: the count begins anew. Both cost further kills and never an
// innocent record. Redis is waited for once per assignment.
//
// Not promised: a machine that is switched off three times in a row, the last
// time at the very moment at which an innocent suspect is alone in hand, looks
// like a record that kills. It is in the dead letters then, and can be replayed.
// So does a suspect with two deaths that takes longer than its turn and is in
// company again when another record, new and of the killing kind, ends the process.
package suspect
