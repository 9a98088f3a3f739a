// Package schedule runs jobs at fixed times, once per slot over the cluster. A
// slot is a job's name and a time that its specification names.
//
//	every node ─▶ lease in Redis ─▶ one leader ─┬─ plans: slots since the last one ─▶ rows "due" or "missed"
//	                                             ├─ begins: due ─▶ running (its fence, its node)
//	                                             └─ ends: running ─▶ done, failed, interrupted, or due again
//	operator ─▶ Ask on any node ─▶ a row "due" that no specification named
//
// Idea: the rows decide, the lease only keeps nodes from crowding. A slot is
// claimed by its row, which is unique, in the transaction that moves the plan
// past it; so whoever leads next goes on behind it and never runs it again. All
// times are the database's: a node whose own clock is wrong changes nothing.
//
// Invariants: a slot is begun while one fence is at the head of the table, and
// a leader that was overtaken (it slept, Redis forgot it) is refused there; a
// job has at most one row that is running; every slot that has passed is done,
// failed, interrupted, waiting or recorded as missed, never silently skipped.
// A job that asks Run.Check before an effect, or makes it in Run.Tx, has no
// effect after somebody else has taken its slot over; one whose last effect is
// in the database makes it in Run.Complete, and then it happens exactly once.
//
// On failure: without Redis nobody leads and nothing begins; without the
// database neither. What was missed is made up for when both are back, within
// the job's catch-up window, and recorded as missed beyond it. A run whose
// process died is found by the next leader and decided by the job's policy:
// again, or left for a person. A job that fails is tried again a bounded number
// of times; one that kills its process counts against the same bound.
//
// Not promised: that an effect outside of the database happens exactly once. A
// process that dies behind such an effect has not said so. Run.Key names the
// slot, to be used as the effect's idempotency key.
package schedule
