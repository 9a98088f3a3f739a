// Package spool keeps records on this node's disk while the queue cannot take
// them, and hands them to it afterwards (decisions.md D12).
//
//	Append ─▶ queue in memory ─▶ one writer: write a batch ▸ fsync ─▶ Append returns
//	Replay ─▶ read from the cursor ▸ publish, in order per key ▸ move the cursor ▸ delete what lies behind it
//
//	dir/LOCK                        held by the one process that uses the directory
//	dir/00000000000000000001.seg    segments, named by the first sequence number in them
//	dir/cursor                      the next sequence number to replay
//	dir/*.bad                       what could not be read or will never be taken, kept for a human
//
// Invariants. Append returns nil only after the record and the directory entry
// of its segment are synced. A record leaves the spool only after publish has
// returned nil for it, or after it was parked in a synced file. Records of one
// key leave in the order in which they were appended; while Holds says that a
// key is in the spool, a newer record of that key must be appended as well, or
// it would overtake. Bytes on disk stay below MaxBytes.
//
// On failure. A full spool or disk refuses and forgets nothing. A crash can
// cost records that were not acknowledged, and makes Replay publish again what
// it published since the cursor was last saved: duplicates, in the same order
// per key, never loss. A torn tail is cut off; a bad record in the middle is
// parked with an alarm and the rest is read. A write or sync that failed is
// never trusted afterwards: its segment is closed at the last good byte.
package spool
