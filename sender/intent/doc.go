// Package intent is the line that no duplicate passes (decisions.md D7): one
// insert-only row per message, written before its first try, and one more when
// its outcome is known.
//
//	Begin(id)        ─┐
//	Begin(id)        ─┼─▶ one writer ─▶ INSERT … ON CONFLICT DO NOTHING ─▶ new? or when was the
//	Finish(id, news) ─┘    (takes what has gathered while                   first try, and what came of it
//	                        the last batch was out)
//
// Invariant: when Begin says Fresh, no process has tried this message before
// and the row is on disk. When it gives news, the message ended with them and
// must not be tried again. When it gives neither, a try may have happened at
// or after FirstTryAt, and the caller decides by the message's class. Rows are
// never changed; they go after the retention, by day.
//
// The outcome is what keeps "may have been sent" small. A queue commits only
// the contiguous finished part of a partition, and only every second, so after
// every stop, rebalance or crash a handful of finished letters come back. With
// the outcome they are recognised; without it each would be sent again (or
// called unknown) although its fate is known. What stays doubtful are requests
// whose answer this process did not live to write down.
//
// On failure: if the database is away Begin returns fault.Unavailable and
// nothing may be sent. If a commit's answer was lost, the row may be there
// although nobody tried; this process remembers the mark that it wrote and
// recognises its own row when the letter comes back, another process takes it
// for an ambiguous past, which errs on the safe side.
//
// The tables are not partitioned natively: a unique key over partitions would
// have to contain the day, and a letter that comes back after midnight would
// not meet its own row. The day is an indexed column instead and whole days
// are deleted in small portions.
package intent
