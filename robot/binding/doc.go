// Package binding knows which business user a follower is.
//
//	rules, public API ──▶ Lookup ──▶ guard ─┬─▶ Redis, sealed
//	                                        └─▶ the bank's system   (GET)
//	public API ──▶ Bind, Unbind ────────────▶ the bank's system   (PUT, DELETE) ▸ invalidate
//
// The back end of the configuration is the authority; nothing here decides who
// is bound to whom, and nothing is written anywhere before the back end has said
// yes. What it answered to a lookup is kept for a while (ttl), also that a
// follower is not bound: a personal value (D16), sealed with the deployment's
// key, or not kept at all without one.
//
// Invariant: what was looked up before a Bind or Unbind through this package
// returned without an error is never given to whoever asks after it, on any node
// (package guard).
// A change that the bank's system makes by itself is seen after ttl at the latest.
//
// On failure: an error of the back end is the caller's; it is never taken for
// "not bound". A write whose outcome is not known invalidates as well. Without
// Redis each node asks the back end by itself, keeps its own answers for ttl and
// does not hear of the writes of others for so long; a write is then done at the
// back end and answered with an error that says so (api.ErrInPart). A robot that is
// configured without Redis has nobody to tell: run only one like that.
package binding
