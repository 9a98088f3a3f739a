// Package intake is the push API of business systems: POST /v1/pushes.
//
//	key ▸ limits ▸ strict JSON ▸ fields ▸ id ▸ [row of the idempotency key] ▸ publish (acks=all) ▸ 202 {id}
//
// Invariant: a 202 is given only after the push is durable in the queue. The
// answer to a repeated request with the same idempotency key and the same body
// is the same id, on every node, and such a repeat never makes a second
// message; with another body it is a conflict.
//
// On failure: queue or database away is 503 with Retry-After, and nothing was
// accepted. If it is not known whether the queue took the record the answer is
// 503 as well; repeating with the same Idempotency-Key is safe, because the id
// is derived from it and the sender recognises the message. Without a key a
// repeat is a new message.
//
// Keys are remembered for three days; after that the same key makes a new
// row, and the message is a new one for the sender too.
package intake
