// Package token keeps the access tokens of the accounts (wechat.md 4.1).
//
//	Token ──▶ memory ──(none usable)──▶ Redis ──(none usable)──▶ one refresher ──▶ stable_token
//	Rejected(used) ──▶ another one cached? take it
//	               └─▶ one refresher ──▶ stable_token ──(the same again)──▶ force_refresh, once
//
// Invariants. One refresher per account at a time over all nodes, held by a
// claim in Redis that ends by itself. Every refresh carries a fence, and a
// token never replaces one that a later refresh brought, so a refresher that
// slept cannot put an old token back. The old token is served while a new one
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
// Tokens and secrets are never logged; a Token prints as its length.
package token
