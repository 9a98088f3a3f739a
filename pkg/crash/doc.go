// Package crash names instants at which a process can be made to die, so that a
// fault test reaches each of them every time instead of hoping for it.
//
// Code calls At with the name of the instant. In a release the package is empty:
// At does nothing, is inlined away, and neither the names nor the variables are
// in the binary (test/chaos checks that, S90). With the build tag crash
//
//	TIDEGATE_CRASH_AT=CP3:7   kills the process with SIGKILL at the 7th pass of CP3
//	TIDEGATE_LIVELOCK=CP8:2   holds whoever passes CP8 for the 2nd time or later, for ever
//
// SIGKILL means that nothing is flushed, closed or said to anybody, as when the
// machine's memory runs out. One line on standard error says where it happened.
// A variable that cannot be understood ends the process at the first pass: a
// fault that silently does not happen would prove nothing.
//
// The instants:
//
//	CP1 body read
//	CP2 claim written
//	CP3 produced, unacked: the request is on its way to the broker
//	CP4 broker or spool has acknowledged, before the HTTP answer
//	CP5 answer sent, mark not finalised
//	CP6 spool record half written
//	CP7 spool replay: produced, cursor not saved
//	CP8 robot has a permit for a callback and is about to decide
//	CP9 sender has stored the intent of a message that nobody has tried before
//	CP10 sender has the permit for a message and is about to send it
//	CP11 sender has written a message to WeChat's socket and has no answer
//	CP12 sender has WeChat's answer and has told nobody
//	CP13 an outcome is stored or its receipt published, receipts have joined a batch: the offset is not committed
//	CP14 a group has committed offsets
//	CP15 sender has got an access token and has not published it to the others
//	CP16 a leader has begun the slot of a job in the database and has not run it
package crash
