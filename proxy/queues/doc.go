// Package queues watches how much waits in every queue, for how long, and
// whether anybody works it off (M7).
//
//	Kafka: committed offsets, ends ──every poll──▶ Watch ─┬▶ GET /ops/v1/queues, tidegate queues
//	spool: records per topic ───────────────────▶        ├▶ metrics, alarms on transitions
//	                                                     └▶ the door: place and wait of a follower
//
// A number says little: 10,000 waiting records are a second's work or an
// hour's. So each partition is judged over a window, in the manner of LinkedIn's
// Burrow: ok, slow, stall, stop, rewind (judge.go). From depth and status come
// verdicts with hysteresis (verdict.go): faulty, slow, overload.
//
// The watch only looks and tells. A robot that does not work its partition
// leaves the group by itself or loses its session, and the group moves the
// partition (D13); users are never hashed anew.
//
// The age of the head is interpolated from where the end of the log was when
// (timeline.go), which costs nothing; only where that is not known closely
// enough – after a start, after an outage – do the brokers search it in their
// time index, ten questions for all partitions together. So ages are right from
// the first poll on, a steady state costs nothing, and the door's user at Kafka
// need not be allowed to read what users wrote.
//
// Records that retention deletes unread are told (queue_skipped), also of a group
// that never committed: then they count from the oldest record that this process
// has seen, so what was deleted before its first look, or while it was down, is
// not known.
//
// Bounds: one question to the queue at a time, however long it takes; the watch
// is busy at most a fifth of the time; memory per partition is fixed. While the
// queue is away the last view stays, marked stale, and no verdict and no alarm
// changes.
package queues
