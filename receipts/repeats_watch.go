package receipts

import (
	lru "container/list"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"tidegate/receipts/store"
)

// watch sees who repeats too often. The repeats of a user are all on one
// partition, since the openid is the record's key, so the one process that
// reads it sees all of them and no count is shared.
//
// It counts by the time at which the door took a repeat, not by when we read
// it: a backlog that is read in a second raises no alarm of its own, and one
// that tells of what has ended long since raises none at all. A repeat that the
// queue brings again counts once.
//
// It is memory of this process: after a start, or when the partition moves to
// another process, the last minute is not known there. An alarm that fires then
// is resolved here when the user was calm, and fires there if it must.
type watch struct {
	cfg RepeatAlarm
	now func() time.Time
	bad func(user follower, firing bool) // told about each beginning and end

	mu     sync.Mutex
	users  map[follower]*lru.Element // of *watched
	recent *lru.List                 // the most recently seen in front
}

// follower is a user of an account.
type follower struct{ account, openid string }

// watched is one user. The newest At presses are enough: they lie within the
// window or the user is below.
type watched struct {
	who    follower
	last   []press // oldest first
	over   int64   // the last time the user was not below, Unix milliseconds; 0 never
	seen   int64   // when we last heard, by our clock
	firing bool
}

type press struct {
	at int64
	id uint64
}

func newWatch(cfg RepeatAlarm, now func() time.Time, bad func(follower, bool)) *watch {
	return &watch{cfg: cfg, now: now, bad: bad, users: map[follower]*lru.Element{}, recent: lru.New()}
}

// see takes a repeat that is in the rows, and tells whether it is a new one as
// far as is remembered.
func (w *watch) see(n store.News) bool {
	if w.cfg.At == 0 {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now().UnixMilli()
	u := w.user(follower{n.Account, n.OpenID}, now)
	if !u.add(press{min(n.At, now), idHash(n.ID)}, w.cfg.At) {
		return false
	}
	if len(u.last) == w.cfg.At {
		newest := u.last[len(u.last)-1].at
		if newest-u.last[0].at < w.cfg.Within.Milliseconds() {
			u.over = max(u.over, newest)
		}
	}
	if !u.firing && u.over > 0 && now-u.over < w.cfg.Calm.Milliseconds() {
		u.firing = true
		w.bad(u.who, true)
	}
	return true
}

// user finds or makes a user and puts it in front; the one that was quiet the
// longest makes room.
func (w *watch) user(who follower, now int64) *watched {
	if e := w.users[who]; e != nil {
		w.recent.MoveToFront(e)
		u := e.Value.(*watched)
		u.seen = now
		return u
	}
	if w.recent.Len() >= w.cfg.MaxUsers {
		w.drop(w.recent.Back())
	}
	u := &watched{who: who, seen: now}
	w.users[who] = w.recent.PushFront(u)
	return u
}

func (w *watch) drop(e *lru.Element) {
	u := e.Value.(*watched)
	w.recent.Remove(e)
	delete(w.users, u.who)
	if u.firing {
		w.bad(u.who, false)
	}
}

// add keeps the newest most presses in the order of their times. It tells
// whether the press is one that was not known.
func (u *watched) add(p press, most int) bool {
	if slices.ContainsFunc(u.last, func(q press) bool { return q.id == p.id }) {
		return false
	}
	i := len(u.last)
	for i > 0 && u.last[i-1].at > p.at {
		i--
	}
	if len(u.last) == most {
		if i == 0 {
			return true // older than all that count
		}
		copy(u.last, u.last[1:i])
		u.last[i-1] = p
		return true
	}
	u.last = slices.Insert(u.last, i, p)
	return true
}

// sweep ends what is over and forgets who is quiet.
func (w *watch) sweep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now().UnixMilli()
	for e := w.recent.Front(); e != nil; {
		u, next := e.Value.(*watched), e.Next()
		if u.firing && now-u.over >= w.cfg.Calm.Milliseconds() {
			u.firing = false
			w.bad(u.who, false)
		}
		if within := w.cfg.Within.Milliseconds(); !u.firing && now-u.seen >= within && now-u.last[len(u.last)-1].at >= within {
			w.drop(e)
		}
		e = next
	}
}

func (w *watch) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.recent.Len()
}

func idHash(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return h.Sum64()
}
