// Package slice counts what happened in the last period, over the cluster, by
// slices of time.
//
// Idea: a period is cut into n slices. One hash per scope holds a count for each
// slice that is not over yet; a visit adds to the slice of the moment and sums
// the slices of the period. One script does both for several scopes at once:
// either all of them have room and all are counted, or none is.
//
//	 oldest                                       now
//	|  k-4  |  k-3  |  k-2  |  k-1  |  k  . . .     n = 4
//	        └─────────── paper ─────────┘           n slices, the current one partial: up to 2 × Limit in a true period
//	└──────────────── strict ───────────┘           n+1 slices: never above Limit in any period, uses n/(n+1) of it
//	   └─ part ─ weighted ──────────────┘           the oldest by the part of it that is inside: uses nearly all, errs a little
//
// Invariant: a refused visit is not counted, so a caller at three times its
// limit still gets its limit. Only the server's clock is looked at. When a
// rule's period or number of slices changes, the fields of before count in full
// until they are a period old, so a change neither resets nor doubles an
// allowance.
//
// On failure: an error means that nothing was decided; after a lost reply the
// visit may be counted. Nothing is repeated here: counting twice is worse than
// letting the caller decide what it does without an answer. Window is the same
// decision in one process, for that case.
package slice
