// Package proxy is the door: the one address that WeChat posts to.
//
//	POST /wx/{account}
//	  limits ▸ signature ▸ decrypt ▸ read ▸ identity ▸ claim ▸ publish (acks=all) or spool (fsync) ▸ "success"
//
// The invariant: a 200 is given only after the queue has acknowledged the
// record with all in-sync replicas, or after it is synced into this node's
// spool (proxy/spool; optional). Everything authentic gets a 200, however odd
// its text; the exceptions are a body over the limit (413) and a record that
// neither queue nor spool can take (503, so that WeChat sends it again).
// Refusals before authenticity is shown say nothing about why.
//
// The spool gets what the queue did not acknowledge in time, what comes while a
// topic's breaker is open, and whatever belongs to a follower of whom something
// is still in it: so nobody overtakes themselves (outlet.go).
//
// The claim in Redis keeps WeChat's own repeats from being worked twice. It is
// a saving, not the guarantee: with Redis away callbacks are published
// unchecked, since a duplicate is absorbed further on and a loss is not
// (decisions.md D6).
//
// News about messages that we sent (receipts) is recognised here, goes to its
// own topic and never reaches a robot. A user's hasty second press goes to
// repeats and is acknowledged, not worked (M9).
package proxy
