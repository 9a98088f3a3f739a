// Package ratelimit holds back work to a rate, a burst and a number in flight:
// Limiter within one process, Cluster over all processes that name a cap, both
// exactly.
//
// Idea: the generic cell rate algorithm (ITU-T I.371) in integers. A permit
// moves a theoretical time forward by 1/rate; a permit may be taken while that
// time is at most (burst-1)/rate ahead of the clock. Rates are kept as fractions
// of integers, so 1,019 a minute gives 1,019 a minute and not 16 a second.
//
// Over the cluster the theoretical time lies in Redis and moves by its clock. A
// node that has callers waiting takes a few permits ahead, each a slot: it may be
// used from a moment on, lapses 20 to 50 ms later and is not given back. So what
// was slept through, died or came late cannot bunch (shared_script.go says why
// every window holds).
//
//	callers ─▶ line ─▶ permits in hand (slots) ◀─ keeper ─▶ Redis: one script a cap
//	                └─▶ share, while Redis is shown to be away
//
// Invariant: the number of permits taken in any window of any length W, wherever
// it begins, is at most rate×W + burst; and never more than Concurrency permits
// are out. A cap starts without burst, because whoever was there before may
// have spent it a moment ago.
//
// A waiting caller takes its permit itself, when it runs, instead of being
// handed one in advance: after a pause of the process the callers that were
// waiting find one burst and not one permit each for the whole pause. Take the
// permit last, with the connection ready: what happens between the permit and
// the request is not seen here.
//
// Callers with the lower priority number go first, callers of one priority in
// the order of their arrival. Priority is strict: while realtime work waits, bulk
// work does not move. Over the cluster it is the order within each node; nodes
// that wait get the same.
//
// On failure: a caller whose context ends leaves the queue without a trace.
// When Redis has lost its data, another server took over or its clock was put, a
// cap begins anew and empty, after a rest in which all that went out before has
// lapsed. When Redis does not answer for 1.8 s a node takes 1/MaxNodes of the cap,
// as long as each question shows that Redis is still away; a share of less than
// one permit of burst or one place is a pause.
//
// Not promised: places (Concurrency) of a node that slept through their life, or
// lost Redis, are given to others while its calls are still on the wire. A node
// that alone is cut off from Redis, while the others reach it, takes its share on
// top of theirs. More processes than MaxNodes exceed a cap while Redis is away. A
// clock of Redis that is put forward by less than Config.Timeout lets so much more
// through, once.
package ratelimit
