package kafka

import (
	"time"

	"github.com/IBM/sarama"
)

// Header is one named value beside a record's body. It is an alias of an
// unnamed struct on purpose: the letters' package declares the same one, so
// that their headers fit here without a conversion and without an import.
type Header = struct {
	Key   string
	Value []byte
}

// Record is one message of a topic. When publishing, Partition and Offset are
// ignored and set from the produce result: the key decides the partition. A
// nil Key means "any partition, no order". A zero Timestamp means now.
//
// The byte slices of a record that is being published belong to the producer
// until its result is known, also after Publish returned fault.Ambiguous: do
// not put them back into a pool.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	Timestamp time.Time
}

// Header gives the value of the last header of that name, or nil.
func (r Record) Header(key string) []byte {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == key {
			return r.Headers[i].Value
		}
	}
	return nil
}

// validTopic tells whether Kafka accepts the name: 1 to 249 letters, digits,
// '.', '_' or '-'.
func validTopic(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > 249 {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// size is what a record costs in memory, for the bounds on buffers. 64 bytes
// stand for the structures around it.
func (r Record) size() int64 {
	n := 64 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 16
	}
	return int64(n)
}

// names keeps the names of headers that one reader has met, so that a record's
// need no memory of their own. Nil keeps none. It is not safe for concurrent use.
type names map[string]string

// maxNames bounds it: a producer that makes names up must not fill our memory.
const maxNames = 64

func (n names) of(b []byte) string {
	if name, ok := n[string(b)]; ok {
		return name
	}
	name := string(b)
	if n != nil && len(n) < maxNames {
		n[name] = name
	}
	return name
}

func recordOf(m *sarama.ConsumerMessage, known names) Record {
	r := Record{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset,
		Key: m.Key, Value: m.Value, Timestamp: m.Timestamp,
	}
	if len(m.Headers) > 0 {
		r.Headers = make([]Header, 0, len(m.Headers))
		for _, h := range m.Headers {
			if h != nil {
				r.Headers = append(r.Headers, Header{Key: known.of(h.Key), Value: h.Value})
			}
		}
	}
	return r
}
