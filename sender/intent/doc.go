// Package intent is the line that no duplicate passes (decisions.md D7): one
// insert-only row per message, written before its first try.
//
//	Begin(id) ─┐
//	Begin(id) ─┼─▶ one writer ─▶ INSERT … ON CONFLICT DO NOTHING ─▶ new? or when was the first try
//	Begin(id) ─┘    (takes what has gathered while the last batch was out)
//
// Invariant: when Begin says Fresh, no process has tried this message before
// and the row is on disk. When it says otherwise, a try may have happened at
// or after FirstTryAt, and the caller decides by the message's class. Rows are
// never changed; they go after the retention, by day.
//
// On failure: if the database is away Begin returns fault.Unavailable and
// nothing may be sent. If a commit's answer was lost, the row may be there
// although nobody tried; this process remembers the mark that it wrote and
// recognises its own row when the letter comes back, another process takes it
// for an ambiguous past, which errs on the safe side.
//
// The table is not partitioned natively: a unique key over partitions would
// have to contain the day, and a letter that comes back after midnight would
// not meet its own row. The day is an indexed column instead and whole days
// are deleted in small portions.
package intent
