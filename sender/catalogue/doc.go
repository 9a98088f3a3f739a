// Package catalogue knows the templates of each account, so that a push that WeChat
// would refuse a minute later is refused when it is asked for, with its field named.
//
//	Find ──▶ a copy of the account's list, minutes old ──▶ found | unknown | away
//	              ▲
//	Run ──────────┘ reads the list again: when it is old, and when an id is not in it
//
// Idea: the list changes a few times a month and every push asks, so pushes are
// answered from the copy, and only the first push of an account or one with an id
// that the copy lacks waits for WeChat, for a bounded time.
//
// Invariant: a template is called unknown only if a list says so that was read after
// the push had come, or at most a moment before. What cannot be told is away, never
// unknown: a good push must not be refused because WeChat is slow.
//
// On failure: the copy stays good for a day; behind that, and where none was ever
// read, the answer is away and the caller decides. A kind of which the
// list has none counts as not read: the account may lack the right to it. Lists are
// asked for at most every half minute per account.
package catalogue
