package redismem

import (
	"bufio"
	"bytes"
	"container/heap"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// hints says which key to look at when. For each key at most one hint counts,
// the earliest; looking at a key that lives on makes the next hint, so a life
// that is renewed a thousand times has one hint and not a thousand.
type hints struct {
	mu    sync.Mutex
	queue hintQueue
	at    map[string]int64 // the hint that counts
	next  atomic.Int64     // the earliest hint, so that most commands need no lock
	wake  chan struct{}
}

type hint struct {
	at  int64
	key string
}

func newHints() *hints {
	h := &hints{at: map[string]int64{}, wake: make(chan struct{}, 1)}
	h.next.Store(math.MaxInt64)
	return h
}

func (h *hints) push(key string, at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.at[key]; ok && known <= at {
		return
	}
	h.at[key] = at
	heap.Push(&h.queue, hint{at, key})
	if at < h.next.Load() {
		h.next.Store(at)
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// due takes out the keys to look at now.
func (h *hints) due(now int64) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var keys []string
	for len(h.queue) > 0 && h.queue[0].at <= now {
		e := heap.Pop(&h.queue).(hint)
		if at, ok := h.at[e.key]; ok && at == e.at {
			delete(h.at, e.key)
			keys = append(keys, e.key)
		}
	}
	if len(h.queue) > 0 {
		h.next.Store(h.queue[0].at)
	} else {
		h.next.Store(math.MaxInt64)
	}
	return keys
}

// expireDue deletes what has ended. It holds miniredis' lock, so no command can
// come between looking at a key and deleting it.
func (s *Server) expireDue() {
	if s.hints.next.Load() > s.now() {
		return
	}
	s.m.Lock()
	defer s.m.Unlock()
	now := s.now()
	keys := s.hints.due(now)
	if len(keys) == 0 {
		return
	}
	var buf bytes.Buffer
	p := server.NewPeer(bufio.NewWriter(&buf))
	p.ClientName, p.Ctx = rawName, s.nested
	ask := func(args ...string) string {
		buf.Reset()
		s.srv.Dispatch(p, args)
		p.Flush()
		return buf.String()
	}
	for db := range s.dbs {
		ask("SELECT", strconv.Itoa(db))
		for _, key := range keys {
			reply := strings.TrimSuffix(strings.TrimPrefix(ask("PTTL", key), ":"), "\r\n")
			switch end, err := strconv.ParseInt(reply, 10, 64); {
			case err != nil || end < 0: // gone, or lives for ever
			case end <= now:
				ask("DEL", key)
			default:
				s.hints.push(key, end)
			}
		}
	}
}

// sweep frees the memory of keys that nobody asks for. It ends at Close.
func (s *Server) sweep() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if next := s.hints.next.Load(); next < math.MaxInt64 {
			wait = max(time.Duration(next-s.now())*time.Millisecond, time.Millisecond)
		}
		timer.Reset(min(wait, time.Hour))
		select {
		case <-s.stop:
			return
		case <-s.hints.wake:
		case <-timer.C:
			s.expireDue()
		}
	}
}

// noteDB remembers a database that is about to be selected, in which keys may be
// from now on. The set is guarded by miniredis' lock, which in Lua is held.
func (s *Server) noteDB(args []string, locked bool) {
	if len(args) != 1 {
		return
	}
	db, err := strconv.Atoi(args[0])
	if err != nil || db < 0 {
		return // miniredis refuses it itself
	}
	if !locked {
		s.m.Lock()
		defer s.m.Unlock()
	}
	s.dbs[db] = struct{}{}
}

type hintQueue []hint

func (q hintQueue) Len() int           { return len(q) }
func (q hintQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q hintQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *hintQueue) Push(x any)        { *q = append(*q, x.(hint)) }
func (q *hintQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}
