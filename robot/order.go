package robot

import (
	"strings"
	"sync"
	"time"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// maxAck is the longest time from the arrival of a callback at a door to its
// acknowledgement: WeChat waits no longer.
const maxAck = 5 * time.Second

// arrivals remembers when the newest finished callback of a user reached the
// door, for the users of each partition whose callbacks were finished last. It
// finds broken orders: a callback that reached a door more than maxAck before
// another one was acknowledged before that one was sent, so it must not be
// worked after it. That happens when the balancer gives a user's callbacks to
// several doors while one of them holds some in its spool (D12).
//
// Smaller inversions are not told from two callbacks on their way at once, nor
// those that a user's eviction from this memory or another process hides; doors
// whose clocks differ by seconds make it count too many.
type arrivals struct {
	size int
	mu   sync.Mutex
	of   map[part]*latest
}

// latest are the users of one partition, in a ring by when they first came.
type latest struct {
	place map[string]int // openid to the place in users
	users []arrival
	next  int
}

type arrival struct {
	openid string
	at     int64 // Unix milliseconds
}

func newArrivals(size int) *arrivals { return &arrivals{size: size, of: map[part]*latest{}} }

// late notes a finished callback and tells whether it came out of order.
func (a *arrivals) late(rec kafka.Record, c *wire.Callback) bool {
	if c == nil || c.OpenID == "" || c.ReceivedAt <= 0 || c.ReplayOf != "" { // a replay is late by design
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := part{rec.Topic, rec.Partition}
	l := a.of[p]
	if l == nil {
		l = &latest{place: map[string]int{}}
		a.of[p] = l
	}
	u := l.of(c.OpenID, a.size)
	before := u.at
	u.at = max(before, c.ReceivedAt)
	return before-c.ReceivedAt > maxAck.Milliseconds()
}

// forget drops the users of a partition that somebody else works now.
func (a *arrivals) forget(topic string, partition int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, part{topic, partition})
}

// of finds a user, or a place for him, if need be that of the one who came first.
// His name is cloned, because a letter's texts are one block of memory.
func (l *latest) of(openid string, size int) *arrival {
	if i, known := l.place[openid]; known {
		return &l.users[i]
	}
	i := len(l.users)
	if i < size {
		l.users = append(l.users, arrival{})
	} else {
		i = l.next
		delete(l.place, l.users[i].openid)
		l.next = (l.next + 1) % size
	}
	openid = strings.Clone(openid)
	l.place[openid], l.users[i] = i, arrival{openid: openid}
	return &l.users[i]
}
