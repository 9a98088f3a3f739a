// Package kafka is the adapter over sarama and its only importer. Rooms hand
// each other letters through it without knowing the client library.
//
// Producer: one idempotent producer, acks=all, one request in flight. Publish
// returns from the produce result, so an earlier acknowledgement always means
// an earlier offset of the same key. Everything is bounded: what does not fit
// is refused at once with fault.Unavailable, and the caller spools or answers
// 503.
//
// Group: the claim loop of sarama never works and never sleeps; it pumps into
// a bounded queue per partition and pauses the fetch at a high mark. Workers
// run records of one (topic, partition, key) strictly in order and different
// keys in parallel. A failed record holds its key and is tried again with
// backoff while the other keys go on.
//
// Invariant: the committed offset of a partition is the lowest offset whose
// record is not finished. A crash therefore repeats records, and never skips
// one; what a record does must be idempotent.
//
// On failure: an unreachable cluster is retried with backoff for ever by Run
// and by the producer's connection; the caller sees fault.Unavailable (nothing
// was written) or fault.Ambiguous (it may have been written) in the meantime.
// When a partition is taken away in good order, nothing new of it is begun but
// what lies between finished records, so that the next owner repeats nothing; what
// runs gets a deadline, then its context ends.
package kafka
