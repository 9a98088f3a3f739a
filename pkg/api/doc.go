// Package api is what every HTTP surface of ours shares, so that all of them
// refuse the same things in the same words:
//
//	keys       one app, its keys, scopes and accounts; kept hashed in SQL
//	Authorize  the middleware that lets an app in
//	Decode     strict JSON: the first thing that is wrong is named
//	Params     strict query parameters
//	Problem    application/problem+json answers made from a fault
//	Sealer     cursors and confirmations that nobody can change or invent
//
// Invariants: a key is shown once, when it is made, and never stored; a
// revoked key stops working within KeyLife on every node that reaches the
// database; an answer never holds the text of an internal error; nothing here
// reads X-Forwarded-For or any other header that claims an address.
//
// When the database cannot be asked, keys that were valid at the last reading
// stay valid for Grace, so that intake does not stop with the database; after
// that the answer is 503.
package api
