package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Version is the version of letters that this release writes. A reader
// accepts its own and older versions.
const Version = 1

// version is Version as the header has it.
const version = "1"

// MaxValue is the largest encoded letter in bytes. It stays below Kafka's
// default limit of 1 MB, so that no letter is refused for ever (trap T13).
const MaxValue = 512 << 10

// Kind names a letter in the header "kind".
type Kind string

// The kinds of letters.
const (
	KindCallback   Kind = "callback"
	KindReply      Kind = "reply"
	KindPush       Kind = "push"
	KindReceipt    Kind = "receipt"
	KindRepeat     Kind = "repeat"
	KindDeadLetter Kind = "deadletter"
	KindReplay     Kind = "replay"
)

// Header names of every record (D5).
const (
	HeaderVersion = "v"
	HeaderKind    = "kind"
	HeaderID      = "id"
	HeaderTrace   = "traceparent"
)

// Header is one record header. It is an alias of an unnamed struct on
// purpose: pkg/kafka declares the same alias, so that letters reach the
// adapter without a conversion and neither package imports the other.
type Header = struct {
	Key   string
	Value []byte
}

// Letter is anything that travels between rooms.
type Letter interface {
	Kind() Kind
	LetterID() string // the id put into the header, 23 digits or ""
	RecordKey() string
	Trace() string // W3C traceparent, or ""
}

// Errors that make a reader park a record.
var (
	ErrUnknownKind = errors.New("unknown kind of letter")
	ErrNewer       = errors.New("letter written by a newer release")
	ErrTooLarge    = errors.New("letter larger than the limit")
	// ErrNotJSON stands for the decoder's own words, which may quote the letter.
	ErrNotJSON = errors.New("the value is not the JSON of such a letter")
)

// Encode gives the record key, value and headers of a letter. The key of a
// letter without a follower is nil: it is in order with nothing, and an empty
// one would lead all of them into one partition. HTML characters are not
// escaped: the text goes to WeChat as it is. A dead letter always fits: one
// whose record is too large to be kept inside it only names the place where the
// record's own topic still has it.
func Encode(l Letter) (key, value []byte, headers []Header, err error) {
	if a, ok := l.(appender); ok {
		b := a.appendJSON(make([]byte, 0, a.sizeHint()+envelopeHint))
		return seal(b, l.Kind(), l.LetterID(), l.Trace(), l.RecordKey())
	}
	if value, err = marshalJSON(l); err != nil {
		return nil, nil, nil, fmt.Errorf("encode %s %s: %w", l.Kind(), l.LetterID(), err)
	}
	if d, ok := l.(*DeadLetter); ok && len(value) > MaxValue && (d.Headers != nil || d.Key != nil || d.Value != nil) {
		return Encode(d.withoutRecord())
	}
	return seal(value, l.Kind(), l.LetterID(), l.Trace(), l.RecordKey())
}

// envelopeHint is about how many bytes key and headers have.
const envelopeHint = 136

// seal puts a letter's JSON into its envelope. Key and headers lie behind the JSON,
// in the same block if there is room, each slice without room behind it, so that
// an append copies it.
func seal(value []byte, kind Kind, id, trace, user string) (key, _ []byte, headers []Header, err error) {
	if len(value) > MaxValue {
		return nil, nil, nil, fmt.Errorf("encode %s %.64s: %d bytes: %w", kind, id, len(value), ErrTooLarge)
	}
	block := value
	if need := len(version) + len(kind) + len(id) + len(trace) + len(user); cap(block)-len(block) < need {
		block = make([]byte, 0, need) // the JSON stays where it is
	}
	put := func(s string) []byte {
		n := len(block)
		block = append(block, s...)
		return block[n:len(block):len(block)]
	}
	headers = make([]Header, 3, 4)
	headers[0] = Header{Key: HeaderVersion, Value: put(version)}
	headers[1] = Header{Key: HeaderKind, Value: put(string(kind))}
	headers[2] = Header{Key: HeaderID, Value: put(id)}
	if trace != "" {
		headers = append(headers, Header{Key: HeaderTrace, Value: put(trace)})
	}
	if user != "" {
		key = put(user)
	}
	return key, value[:len(value):len(value)], headers, nil
}

func marshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// HeaderValue finds a header, or "".
func HeaderValue(hs []Header, key string) string {
	return string(headerBytes(hs, key))
}

func headerBytes(hs []Header, key string) []byte {
	for i := range hs {
		if hs[i].Key == key {
			return hs[i].Value
		}
	}
	return nil
}

// readable checks the header of the version. That of this release needs no look
// at its number.
func readable(want Kind, header []byte) error {
	if string(header) == version {
		return nil
	}
	v, err := strconv.Atoi(string(header))
	if err != nil || v < 1 {
		return fmt.Errorf("decode %s: header v is %.40q: %w", want, header, ErrUnknownKind)
	}
	if v > Version {
		return fmt.Errorf("decode %s: version %d, this release reads up to %d: %w", want, v, Version, ErrNewer)
	}
	return nil
}

// Decode reads a letter of type T and checks that the headers say so. An
// unknown kind gives ErrUnknownKind, a newer version ErrNewer, too large a value
// ErrTooLarge and one that is no JSON of T ErrNotJSON; all are to be parked.
func Decode[T any, P interface {
	*T
	Letter
}](value []byte, headers []Header) (*T, error) {
	var l T
	want := P(&l).Kind()
	if k := headerBytes(headers, HeaderKind); string(k) != string(want) {
		return nil, fmt.Errorf("decode %s: header kind is %.40q: %w", want, k, ErrUnknownKind)
	}
	if err := readable(want, headerBytes(headers, HeaderVersion)); err != nil {
		return nil, err
	}
	if len(value) > MaxValue {
		return nil, fmt.Errorf("decode %s: %d bytes: %w", want, len(value), ErrTooLarge)
	}
	if r, ok := any(&l).(reader); ok && read(value, r) {
		return &l, nil
	}
	l = *new(T) // the reader may have begun
	if err := json.Unmarshal(value, &l); err != nil {
		return nil, fmt.Errorf("decode %s: %w", want, ErrNotJSON)
	}
	return &l, nil
}
