// Package ratelimit holds back work to a rate, a burst and a number in flight,
// on one node, exactly.
//
// Idea: the generic cell rate algorithm (ITU-T I.371) in integers. A permit
// moves a theoretical time forward by 1/rate; a permit may be taken while that
// time is at most (burst-1)/rate ahead of the clock. Rates are kept as fractions
// of integers, so 1,019 a minute gives 1,019 a minute and not 16 a second.
//
// Invariant: the number of permits taken in any window of any length W, wherever
// it begins, is at most rate×W + burst; and never more than Concurrency permits
// are out. A new limiter starts without burst, because the process before it may
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
// work does not move.
//
// On failure: a caller whose context ends leaves the queue without a trace. A
// limiter owns no goroutine and needs no Close.
package ratelimit
