// Package wechat speaks the language of WeChat service accounts: signed and
// encrypted callbacks on the way in, passive replies and API calls on the way out.
//
// # Idea
//
// Everything that is WeChat's letter or WeChat's rule lives here and nothing
// else does: our own letters are in pkg/wire, policy (how often, how fast, what
// then) is in the rooms. The package holds no state besides the credentials and
// HTTP client that it was given, starts no goroutine and writes no log line.
//
//	query ── ParseQuery ──▶ Query ──┐
//	body ───────────────────────────┴▶ Verifier.Open ──▶ Opened ── ParseMessage ──▶ Message ── Identities
//	                                        │                                          │
//	answer ◀── Verifier.Seal ◀──────────────┴────────── Passive.Encode ◀───────────────┘
//
// # Invariants
//
// A callback is judged by the configuration of the account, never by what the
// request claims about itself. The signature is compared in constant time and
// before anything is decrypted, and every way in which a ciphertext can be wrong
// gives the same refusal. What a follower types can change the text of his own
// message and nothing else: not the sender, not the type, not the identity.
//
// # On failure
//
// A request that is not authentic gives a *Refusal (fault.Denied) which tells
// the peer nothing. An authentic document never gives an error because of its
// content: what cannot be read without doubt comes back as a Message that is
// Quarantined and can still be acknowledged, stored and found again. A call to
// WeChat that goes wrong gives an *APIError that says whether the request may
// have had its effect. No error text holds a token, a secret or WeChat's prose.
package wechat
