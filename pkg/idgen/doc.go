// Package idgen makes message ids: 23 decimal digits that say where a row
// lives before any database is asked.
//
//	V  SS  T  NNNNNNNNNNNNNNNNNNN
//	│  │   │  └ 63 bits in 19 digits, zero-filled
//	│  │   └ table digit  = uid % 10
//	│  └ shard digits = (uid/10) % 64 + 1, always two (01–64)
//	└ 1: time | worker | sequence (generated)   2: hash of an identity (derived)
//
// Derived ids need no generator, no Redis and no clock: the same identity
// gives the same id on every node, so no repeat, retry or replay can make a
// second one (decisions.md D3). Two identities may in theory share the 63
// bits; therefore the full 256-bit hash is always stored beside the id, and
// equal ids with different hashes are different messages.
//
// Generated ids are for pushes that bring no key. They hold 41 bits of
// milliseconds since 2025-01-01 UTC, 10 bits of worker number and 12 bits of
// sequence (the layout of Twitter's snowflake, flow.md 5.3). A worker number
// is leased; without one in force the generator refuses, it never guesses.
//
// An id is not a 64-bit integer and travels as text everywhere.
package idgen
