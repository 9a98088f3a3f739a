// Package hold keeps what must wait out of the queue (decisions.md D8): one row
// per letter that cannot go within half a minute, with the time at which it may.
//
//	sender ─ Put ─▶ one writer ─▶ held(id, due_at, reason, letter …)
//	                                    │ due, or what held it is over
//	                                    ▼
//	          lane's topic ◀─ produce ─ releaser (one node at a time, with a ramp)
//	                             └ acked ─▶ DELETE … WHERE rev is the one that was read
//
// Invariant: a letter is in the queue or in a row at every moment, never in
// neither. Its row is durable before its offset is committed, and it is deleted
// only after the queue has acknowledged it. In between it is in both, so it may
// come twice; whoever works it recognises that by its id, and an older copy by
// its generation, which a row never gives back. A row that was written anew while
// it was being fed back has another revision and stays.
//
// One node feeds back at a time, by a lease in the database, so that the ramp
// holds for all nodes together. A node that was frozen and still believes to have
// the lease only makes copies.
//
// On failure: while the database is away nothing is put, so offsets are not
// committed and letters stay in the queue. While the queue is away rows stay.
// The number of rows is bounded by each node's view of it; beyond the bound
// letters wait in the queue as they did before, which costs order in time and
// never a letter.
package hold
