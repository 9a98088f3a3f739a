package store

import (
	"cmp"
	"slices"
)

// ResendMark names a message and its re-send.
type ResendMark struct {
	OldID   string `json:"old"`
	Variant int    `json:"variant,omitempty"`
	NewID   string `json:"new"`
	// Seen is the re-send that the message had when it was read, or "": if it has
	// another one by now, somebody was faster.
	Seen string `json:"seen,omitempty"`
	// At is the birth of the new message in Unix milliseconds: it does not change
	// when a page is published again, since it says where the row lies.
	At int64 `json:"at,omitempty"`
}

// sortedMarks gives marks in the one order of locks.
func sortedMarks(marks []ResendMark) []ResendMark {
	return slices.SortedFunc(slices.Values(marks), func(a, b ResendMark) int {
		return cmp.Or(cmp.Compare(a.OldID, b.OldID), cmp.Compare(a.Variant, b.Variant))
	})
}
