// Package plugin asks external engines what to answer: programs of the
// operator's, over HTTP, that stand where a rule would.
//
//	letter + variables ─ sign ─▶ POST (pkg/outhttp) ─▶ read, strictly ─▶ engine.Said
//
// The address is configuration, and still input: it is checked at start, at
// every dial against the list of pkg/outhttp, and a redirect is a wrong answer.
// Requests are signed as Standard Webhooks are, over "id.timestamp.body", so
// that an engine knows who asks; with two keys while they are changed. The id
// is the callback's, the same in every try and after a crash: an engine that
// acts must remember it.
//
// On failure the caller gets an error of package fault and the follower the
// rule's fallback text. Errors name the engine and what is wrong with its
// answer; they hold no URL, header, text or openid.
package plugin
