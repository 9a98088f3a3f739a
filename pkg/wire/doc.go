// Package wire holds OUR letters: what one room hands to another through
// Kafka, and nothing else. Their JSON form, the record key, the headers and
// the topic names are a contract between releases: golden files pin them.
//
//	proxy ── Callback ──▶ robot ── Reply ──▶ sender ── Receipt ──▶ receipts
//	intake ── Push ───────────────────────▶ sender
//	proxy ── Receipt (what WeChat says) ──────────────────────────▶ receipts
//
// A reader ignores fields that it does not know, so that release N−1 reads
// what N writes. A kind or a version that it does not know is an error that
// the reader parks as a DeadLetter; it is never dropped (decisions.md D5).
//
// The table of message states lives here too, because every room writes or
// reads states and only one of them may decide what outranks what (D10).
package wire
