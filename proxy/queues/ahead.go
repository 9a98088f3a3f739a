package queues

import (
	"time"

	"tidegate/pkg/kafka"
)

// Place is where a record that goes into a queue now would stand.
type Place struct {
	Ahead int64         // records before it
	Wait  time.Duration // until it is worked, if nothing changes
}

// loads is what the door asks: callbacks by account, from the last measurement.
type loads struct {
	at       time.Time
	accounts map[string]*load
}

// load is how much waits for the robots of one account.
type load struct {
	partitions []place // by number; ok is false where nobody can know
	whole      place
	worst      time.Duration
	// long is when some partition last took longer than the threshold.
	long time.Time
}

type place struct {
	Place
	ok bool
}

// loadsNow makes the table for the door. The spool's records come before
// whatever is written now; their partitions are not known, so each gets its
// share.
func (w *Watch) loadsNow(now time.Time) *loads {
	before := w.loads.Load()
	held := w.spool().Topics
	out := &loads{at: now, accounts: map[string]*load{}}
	for _, q := range *w.known {
		if q.Name != "callbacks" {
			continue
		}
		s := w.sets[q]
		l := s.load(held[q.Topic])
		out.accounts[q.Account] = l
		switch {
		case w.d.Threshold > 0 && l.worst >= w.d.Threshold:
			l.long = now
		case before != nil && before.accounts[q.Account] != nil:
			l.long = before.accounts[q.Account].long
		}
	}
	return out
}

func (s *set) load(spooled int64) *load {
	l := &load{}
	n := int64(len(s.partitions))
	if n == 0 {
		return l
	}
	share := (spooled + n - 1) / n
	able := speed{known: true}
	var all int64
	for i, p := range s.partitions {
		if p.lag.Partition != int32(i) { // one is missing: a key's partition cannot be told
			l.partitions = nil
			break
		}
		d, ok := p.drain(share)
		l.partitions = append(l.partitions, place{Place{p.lag.Lag + share, d}, ok && p.sure()})
	}
	sure := true
	for _, p := range s.partitions {
		all += p.lag.Lag
		able.perSecond += p.able.perSecond
		if d, ok := p.drain(share); ok && p.sure() {
			l.worst = max(l.worst, d)
		}
		sure = sure && (p.lag.Lag == 0 || p.sure())
	}
	d, ok := able.drain(all + spooled)
	l.whole = place{Place{all + spooled, d}, ok && sure}
	return l
}

// Ahead tells where a callback of this follower would stand, if that takes
// longer than the threshold. It costs a few loads from memory. It says nothing
// when the last measurement is too old, when nothing moves and nobody can know,
// and in the first seconds of a line, while it is not known how fast it is worked.
func (w *Watch) Ahead(account, key string) (Place, bool) {
	all := w.loads.Load()
	if all == nil {
		return Place{}, false
	}
	l := all.accounts[account]
	if l == nil || l.worst < w.d.Threshold || w.stale(w.now()) {
		return Place{}, false
	}
	p := l.whole
	if n := len(l.partitions); n > 0 {
		p = l.partitions[partitionOf(key, int32(n))]
	}
	return p.Place, p.ok && p.Wait >= w.d.Threshold
}

// partitionOf is where the door's record goes: its key is the openid.
func partitionOf(openid string, partitions int32) int32 {
	return kafka.Partition([]byte(openid), partitions)
}

// WasLong tells that some follower of the account may have been told to wait
// within the last while.
func (w *Watch) WasLong(account string, within time.Duration) bool {
	all := w.loads.Load()
	if all == nil || all.accounts[account] == nil {
		return false
	}
	long := all.accounts[account].long
	return !long.IsZero() && w.now().Sub(long) <= within
}
