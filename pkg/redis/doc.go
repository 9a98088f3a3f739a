// Package redis is the adapter over go-redis: the only package that imports it.
//
// Idea: the rest of the system needs few commands, but needs to know exactly
// what each of them does when the network fails. Therefore:
//
//   - A command that changes something is sent at most once. go-redis repeats a
//     command whose reply was lost, which turns a first SET NX into "exists"
//     and one INCR into two; here only reads are tried a second time.
//   - Every call is bounded by its context and by Config.Timeout, whichever is
//     shorter, including dialling and waiting for a pooled connection.
//   - Every key and channel gets Config.Prefix, so that environments can share
//     a server and an ACL user can be held to one pattern.
//
// On failure: whatever means "Redis cannot serve now" (refused, timed out,
// MISCONF, OOM, READONLY, LOADING, NOSCRIPT, a cluster without a master …) is
// fault.Unavailable. For a write this includes "sent, reply lost": callers that
// care must write values from which they recognise their own work, as
// pkg/dedupe and pkg/lease do. Data in Redis may be lost or step back at a
// failover; no guarantee of the system may rest on it alone.
package redis
