// Package backend calls business systems over HTTP.
//
// A back end has an address, credentials and bounds of its own: a time per
// try, a number of tries with growing, jittered pauses, a size of answer, a
// rate and a number of calls at once. A permit is taken before every try, so
// that retries count against the cap as well. Nothing of one back end (pool,
// permits, metrics) is shared with another.
//
// Every call carries "Idempotency-Key: <callback id>". The same callback may
// be worked twice after a crash, so a back end that acts must remember the
// key; that is the contract. Where ignores_idempotency_key is set, a call whose
// method is not idempotent is tried again only if it certainly did nothing.
//
// The address comes from the configuration and never from a rule: rules give
// a path. Redirects are not followed and proxies from the environment are not
// used, so a call goes where the configuration says or nowhere.
//
// On failure the caller gets an error of package fault. Errors name the back
// end and what happened; they contain no URL, body or header, since those
// carry openids and secrets.
package backend
