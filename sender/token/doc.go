// Package token keeps the access tokens of the accounts (wechat.md 4.1).
//
//	Token ──▶ memory ──(none usable)──▶ Redis ──(none usable)──▶ one refresher ──▶ stable_token
//	Rejected(used) ──▶ another one cached? take it
//	               └─▶ one refresher ──▶ stable_token ──(the same again)──▶ force_refresh, once
//
// Invariants. One refresher per account at a time over all nodes, held by a
// fenced lease in Redis (pkg/lease) that ends by itself. A token carries the fence
// of the lease under which it was fetched and never replaces one with a higher
// fence, so a refresher that slept cannot put an old token back; nor does it force
// a refresh once its lease has ended. Fences rise also when Redis lost its data. The old token is served while a new one
// is fetched. A rejection renews at most once in MinInterval, and forced
// refreshes are counted before they are made: a storm of rejections costs one
// call and everybody else waits (G13).
//
// On failure. Redis away: each node works alone from memory; the normal mode
// of stable_token gives every node the same token, and forcing is cut to
// ForcedAlone a day. WeChat busy: retried with a growing pause while the old
// token serves. WeChat refuses the account (wrong secret, address not on the
// whitelist, …): the account is stopped with one line in the log, a metric and
// a detail for people, and asked again slowly.
//
// Why this is no guard.Do, although an access token is a shared resource with one
// refresher like any other: a guard's values live for a time that its settings
// say, a token for the time that WeChat says; the old token must go on serving
// while the next one is fetched; a refresh costs something that is counted
// (forcing), and a refusal of the account must stop the asking. So the keeper
// shares the guard's mechanism – the lease and its fence – and not its cache.
//
// Tokens and secrets are never logged; a Token prints as its length.
package token
