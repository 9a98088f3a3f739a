package drive

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
)

// Door is one proxy.
type Door struct{ Name, Addr string }

// Routing is how the balancer chooses the door of a delivery.
type Routing int

// The ways.
const (
	// ByUser hashes the openid, consistently: a user keeps his door while it
	// lives, and only the users of a dead one move.
	ByUser Routing = iota
	// Pinned hashes as well and never takes another door. So a user whose door is
	// down waits for it, with whatever of his lies in its spool.
	Pinned
	// AtRandom takes any door each time.
	AtRandom
)

// order is the doors in the order in which they are tried.
func order(r Routing, doors []Door, openid string) []Door {
	out := slices.Clone(doors)
	if r == AtRandom {
		rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out
	}
	// The door with the highest weight for this user: taking one away moves
	// nobody else.
	weight := func(d Door) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(d.Name + "\x00" + openid))
		return mix(h.Sum64())
	}
	slices.SortFunc(out, func(a, b Door) int { return cmp.Compare(weight(b), weight(a)) })
	if r == Pinned {
		out = out[:1]
	}
	return out
}

// mix spreads the bits of a hash whose last bytes have not reached its head
// (the finaliser of MurmurHash3).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
