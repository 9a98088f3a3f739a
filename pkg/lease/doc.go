// Package lease gives rights that end by themselves: a fenced lease, which one
// holder in the cluster has at a time, and leased numbers, of which each holder
// has its own.
//
// Idea: the right is a key in Redis with the holder's random token and a life.
// The holder counts the life from before its request was sent and keeps a tenth
// in reserve, so it stops before Redis forgets. Whoever acts under a lease passes
// its fence, a number that rises with every new holder, to what it changes, so
// that a holder that slept through its end is refused there.
//
// Invariant: while Redis keeps its data, two holders never believe at the same
// time that they hold one lease or one number. Redis data may be lost: the fence
// is then still rising (it is never below the server's clock), and numbers are
// registered again by their holders at the next renewal.
//
// On failure: without Redis nothing can be taken; what is held lasts until its
// end and is then given up, never stretched by guessing.
package lease
