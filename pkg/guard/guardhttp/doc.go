// Package guardhttp is a reverse proxy with a guard in it, for a system that
// cannot be changed to call one.
//
// Idea: requests that a route names and that only read (GET, HEAD) go through
// guard.Do: passed on while the demand is low, shared when it is not. Everything
// else goes through the gate only. After a write that a rule names, the paths
// that it changed are invalidated.
//
// Invariant: an answer is shared only if nothing of the request but what is in
// its key was sent on, and if the system behind did not forbid it (Set-Cookie,
// Cache-Control: no-store, private, Vary: *). A request with a login (Cookie or
// Authorization) that is not part of its route's key is never answered with a
// shared value.
//
// On failure: what the guard refuses is answered with 503, a Retry-After and a
// problem document; a system behind that cannot be reached with 502. X-Guard on
// each answer tells where it came from, Age how old it is. Clients cannot force a
// fetch (Cache-Control of requests is not looked at): that is what the guard is
// there for. Upgrades are not passed on.
package guardhttp
