package spool

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"time"

	"tidegate/pkg/fault"
)

// Header is one named value beside a record's body: an alias of an unnamed
// struct, as in the letters and in the queue's adapter, so that no headers have
// to be converted.
type Header = struct {
	Key   string
	Value []byte
}

// Record is what the spool keeps. A nil Key is in order with nothing.
type Record struct {
	Topic   string
	Key     []byte
	Value   []byte
	Headers []Header
	// At is when the record was appended; Append sets it.
	At time.Time
}

// maxPayload bounds one encoded record. The queue takes 1 MB, so nothing that
// could ever be replayed is larger.
const maxPayload = 1 << 20

// payloadVersion is the first byte of every payload. A newer one is parked, so
// that an older release never guesses.
const payloadVersion = 1

var errPayload = errors.New("not a record of this release")

// encode gives the payload:
//
//	version u8 | at, unix ns, u64 | topic | key, its length plus one, 0 for nil | value | number of headers | name, value …
//
// with every length and number as a uvarint.
func (r Record) encode() ([]byte, error) {
	size := 64 + len(r.Topic) + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value) + 8
	}
	if size > maxPayload {
		return nil, fault.New(fault.Invalid, "append to spool", "the record has about %d bytes, the limit is %d", size, maxPayload)
	}
	if r.Topic == "" {
		return nil, fault.New(fault.Invalid, "append to spool", "the record names no topic")
	}
	b := make([]byte, 0, size)
	b = append(b, payloadVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.At.UnixNano()))
	b = appendField(b, []byte(r.Topic))
	if r.Key == nil {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, uint64(len(r.Key))+1)
		b = append(b, r.Key...)
	}
	b = appendField(b, r.Value)
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		b = appendField(b, []byte(h.Key))
		b = appendField(b, h.Value)
	}
	return b, nil
}

func appendField(b, field []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(field))), field...)
}

// decode reads a payload. The record shares no memory with it.
func decode(payload []byte) (Record, error) {
	d := decoder{b: payload}
	if d.byte() != payloadVersion {
		return Record{}, errPayload
	}
	r := Record{At: time.Unix(0, int64(d.uint64()))}
	r.Topic = string(d.field(d.uvarint()))
	if n := d.uvarint(); n > 0 {
		r.Key = append([]byte{}, d.field(n-1)...)
	}
	if v := d.field(d.uvarint()); len(v) > 0 {
		r.Value = append([]byte{}, v...)
	}
	// A header has at least two bytes, so the payload itself bounds the loop.
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		h := Header{Key: string(d.field(d.uvarint()))}
		h.Value = append([]byte{}, d.field(d.uvarint())...)
		r.Headers = append(r.Headers, h)
	}
	if d.bad || len(d.b) > 0 || r.Topic == "" {
		return Record{}, errPayload
	}
	return r, nil
}

// decoder takes fields off a payload and remembers that one was missing.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) field(n uint64) []byte {
	if d.bad || n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	f := d.b[:n]
	d.b = d.b[n:]
	return f
}

func (d *decoder) byte() byte {
	if f := d.field(1); f != nil {
		return f[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if f := d.field(8); f != nil {
		return binary.LittleEndian.Uint64(f)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// lane is what must stay in order: topic and key, as a hash. Two keys that
// share a hash are kept in one order, which costs time and breaks nothing.
func lane(seed maphash.Seed, topic string, key []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(topic)
	_ = h.WriteByte(0)
	_, _ = h.Write(key)
	return h.Sum64()
}
