// Package redismem is an in-process server that speaks the Redis protocol, for
// `tidegate dev` and for tests. It is miniredis with a clock: miniredis keeps
// lives but never lets them run out, so this package adds that.
//
// Idea: miniredis stores with each key a fixed duration that nothing decreases.
// We let that number mean "milliseconds from the start of the server to the
// key's end". A hook sees every command before it runs, also those inside Lua,
// and rewrites relative lives into that form; replies of TTL and PTTL are
// rewritten back. So NX, GT, KEEPTTL, RENAME and scripts keep their
// meaning, because miniredis itself decides with true, comparable deadlines.
//
// A heap holds for each key with a life the next instant at which to look at it.
// Before each command, and by a timer, due keys are looked at under miniredis'
// own lock: ended ones are deleted, others get a new instant. A client therefore
// never sees a key after its end, and the cost does not grow with the number of
// keys.
//
// Not promised: persistence (a restart is empty), memory limits, clustering, and
// whatever else miniredis lacks. Refused, because the replies could differ from
// those of Redis 7.0: lives of hash fields, COPY, MOVE and SWAPDB, and reading
// lives inside MULTI. Use it on the loopback interface only.
package redismem
