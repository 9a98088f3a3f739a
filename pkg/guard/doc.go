// Package guard keeps a back end from being knocked over by its readers, and
// leaves it alone while they are few.
//
// Idea: while the demand on a back end is below a threshold, every request goes
// through and gets fresh data. Above it the guard changes into protection: a
// resource is fetched by one caller in the cluster at a time, everybody else gets
// the value that this caller wrote to Redis, for as long as its life lasts.
//
//	            demand ≤ threshold                  demand > threshold, or the gate is full
//	Do ──▶ pass ──▶ gate ──▶ fetch          Do ──▶ one flight per key and node ──▶ look ─┬─▶ HIT    the value
//	                  └─ value to Redis, later                                 ▲         ├─▶ LEASE  gate ▸ fetch ▸ publish
//	                                                                           └─────────┴─▶ WAIT   announcement, lease's end, poll
//
// Invariants:
//   - Of one resource there is at most one valid lease. Each has a fence, a
//     number that only rises; a value is published only with a fence above that of
//     the stored value and of the last invalidation. So a holder that comes late
//     replaces nothing newer, and what was fetched before an invalidation is never
//     served after it.
//   - A caller is only answered from a step that began after it came.
//   - The fetches that run on all nodes together are at most Gate while the nodes
//     stay the same. A node that comes begins with a share by the largest number of
//     nodes; until the others have heard of it (one flush, 50 ms) and their fetches
//     of before have ended, the sum may be above Gate by that share.
//   - Everything is bounded: callers that wait, resources, sizes, lives.
//
// On failure: without Redis each node goes on alone (Local) with its share of
// threshold and gate and values of its own, and no caller gets an error for it.
// A fetch that fails leaves a mark, so that the callers in the queue do not try
// one after the other; three failures in a row close the way for a while. Who
// dies with a lease holds up the others for at most TokenTimeout.
//
// The settings of one back end must be the same on all nodes.
//
// The idea is that of paper 000 of this project's design (a proxy in front of
// ticketing systems); leases that an invalidation voids are known from large
// memcached installations.
package guard
