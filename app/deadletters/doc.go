// Package deadletters looks through the topic of dead letters, and puts some of
// them back.
//
//	<prefix>.deadletters ─▶ scan ▸ filter ─▶ list, show
//	                                  └────▶ replay ▸ new identity ─▶ the topic it came from
//	                                                └▶ audit: a replay letter beside the dead ones
//
// Identity. A dead letter is named by what it holds: the place of the record and
// its content. So one that was written twice, as happens when a room dies between
// the dead letter and its commit, is one. A replay gives the record a new id,
// derived from the old one, the dead letter's name and the number of the attempt
// (T63). So it is not taken for what was seen, claimed or begun before, and two
// runs at the same moment, a double click, make the same letters, of which the
// rooms behind work one (G26).
//
// What a callback asks of business systems keeps its key: a system that did it
// before does it no second time.
//
// Order. A replay comes behind everything that its user has sent since; replays
// of one user keep the order of their dead letters.
//
// Audit. Each replay is a letter of kind replay, in the topic of dead letters,
// with who, when and which id it got; what was replayed is left out by the next
// run unless it is asked for again. A run that was broken off is repeated as it
// was: what it had done is left out or recognised.
//
// On failure. Publishing ends the run at the first error, with what was done. A
// record that no room could work better than before is left out, with a reason:
// quarantined, expired, not held by its letter, not understood by this release.
package deadletters
