package sender

import (
	"sync"

	"tidegate/sender/intent"
)

// settledMax bounds the remembered endings: at 1,000 sends a second, the last
// minute.
const settledMax = 65536

// memory is what this process knows of letters: of those under way, so that a
// letter which comes back for another try is not taken for one with an unknown
// past; and of those that ended, so that the second copy of a letter that was
// published twice is not sent. It may be lost at any time: the intents remain.
type memory struct {
	mu      sync.Mutex
	live    map[intent.Key]*live
	settled map[intent.Key]struct{}
	ring    []intent.Key
	next    int
}

type live struct {
	progress  progress
	topic     string
	partition int32
}

func newMemory() *memory {
	return &memory{live: map[intent.Key]*live{}, settled: map[intent.Key]struct{}{}, ring: make([]intent.Key, settledMax)}
}

// recall gives the progress of a letter, new if there is none.
func (m *memory) recall(k intent.Key, topic string, partition int32) *progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.live[k]
	if l == nil {
		l = &live{topic: topic, partition: partition}
		m.live[k] = l
	}
	return &l.progress
}

// forget drops the progress of a partition's letters: somebody else may try
// them now, and what we knew of their past is no longer the whole past.
func (m *memory) forget(topic string, partition int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, l := range m.live {
		if l.topic == topic && l.partition == partition {
			delete(m.live, k)
		}
	}
}

// drop forgets the progress of a letter that was put aside or has ended.
func (m *memory) drop(k intent.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, k)
}

// settle remembers that a letter's outcome is durable.
func (m *memory) settle(k intent.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, k)
	if _, ok := m.settled[k]; ok {
		return
	}
	delete(m.settled, m.ring[m.next])
	m.ring[m.next] = k
	m.settled[k] = struct{}{}
	m.next = (m.next + 1) % len(m.ring)
}

func (m *memory) isSettled(k intent.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.settled[k]
	return ok
}
