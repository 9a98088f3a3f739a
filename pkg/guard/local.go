package guard

import (
	"container/list"
	"sync"
	"time"
)

// localCache holds what this node fetched by itself while Redis is away. It is
// emptied when Redis is back and so holds nothing from before an absence: what
// other nodes invalidated meanwhile could not be known.
type localCache struct {
	entries int
	bytes   int64

	mu    sync.Mutex
	epoch uint64 // rises when the cache is emptied
	held  int64
	byID  map[string]*list.Element
	order list.List // the most recently used first
}

// localEntry is a value, or a mark in the place of one.
type localEntry struct {
	place  place
	body   []byte
	has    bool
	read   time.Time
	failed time.Time // until then nobody tries
	alone  time.Time // until then each caller fetches for itself
}

// overhead is about what an entry costs beside its body.
const overhead = 512

func newLocalCache(entries int, bytes int64) *localCache {
	return &localCache{entries: entries, bytes: bytes, byID: map[string]*list.Element{}}
}

func (c *localCache) get(p place) (localEntry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[p.id()]
	if e == nil {
		return localEntry{}, false
	}
	c.order.MoveToFront(e)
	entry, _ := e.Value.(localEntry)
	return entry, true
}

// now is the epoch, to be given to put: what was begun before the cache was
// emptied does not come into it.
func (c *localCache) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

func (c *localCache) put(e localEntry, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != epoch || int64(len(e.body)+overhead) > c.bytes {
		return
	}
	c.remove(c.byID[e.place.id()])
	c.byID[e.place.id()] = c.order.PushFront(e)
	c.held += int64(len(e.body) + overhead)
	for c.held > c.bytes || c.order.Len() > c.entries {
		c.remove(c.order.Back())
	}
}

func (c *localCache) remove(e *list.Element) {
	if e == nil {
		return
	}
	entry, _ := c.order.Remove(e).(localEntry)
	delete(c.byID, entry.place.id())
	c.held -= int64(len(entry.body) + overhead)
}

// drop forgets a resource with all its variants.
func (c *localCache) drop(resource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil; {
		next := e.Next()
		if entry, _ := e.Value.(localEntry); entry.place.resource == resource {
			c.remove(e)
		}
		e = next
	}
}

// dropPerson forgets everything of a person (place.person).
func (c *localCache) dropPerson(who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil; {
		next := e.Next()
		if entry, _ := e.Value.(localEntry); entry.place.person == who {
			c.remove(e)
		}
		e = next
	}
}

// clear empties the cache.
func (c *localCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.held = 0
	clear(c.byID)
	c.order.Init()
}

func (c *localCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}
