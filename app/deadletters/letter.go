package deadletters

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// nameDigits is how much of a name is shown and asked for: 48 bits.
const nameDigits = 12

// Letter is one dead letter and where it stands.
type Letter struct {
	*wire.DeadLetter
	name     string
	Replays  int // so far, as far as the scan has come
	Replayed time.Time
	By       string
}

// newLetter names a dead letter.
func newLetter(d *wire.DeadLetter) *Letter {
	sum := sha256.Sum256(d.Value)
	h := idgen.HashOf("dead letter", d.Topic, strconv.Itoa(int(d.Partition)), strconv.FormatInt(d.Offset, 10), d.ID, hex.EncodeToString(sum[:]))
	return &Letter{DeadLetter: d, name: h.String()}
}

// Name is what people call it by.
func (l *Letter) Name() string { return l.name[:nameDigits] }

// When is the moment at which it was given up.
func (l *Letter) When() time.Time { return time.UnixMilli(l.At) }

// Kind is that of the record which it holds, or "".
func (l *Letter) Kind() string { return wire.HeaderValue(l.Headers, wire.HeaderKind) }

// Place is where the record lies, or lay.
func (l *Letter) Place() string {
	if l.Partition < 0 {
		return l.Topic
	}
	return l.Topic + "/" + strconv.Itoa(int(l.Partition)) + "@" + strconv.FormatInt(l.Offset, 10)
}

// Filter chooses among dead letters; what is empty does not matter.
type Filter struct {
	Account, Room string
	Reason        string // a part of it
	Since, Until  time.Time
	Names         []string // names, or ids of messages
}

// matches tells whether a letter is meant.
func (f Filter) matches(l *Letter) bool {
	at := l.When()
	return (f.Account == "" || f.Account == l.Account) && (f.Room == "" || f.Room == l.Room) &&
		strings.Contains(strings.ToLower(l.Reason), strings.ToLower(f.Reason)) &&
		(f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until)) && f.names(l)
}

func (f Filter) names(l *Letter) bool {
	for _, n := range f.Names {
		if n == l.ID || len(n) >= nameDigits && strings.HasPrefix(l.name, n) {
			return true
		}
	}
	return len(f.Names) == 0
}

// read tells the two kinds of the topic apart. Anything else gives neither.
func read(r kafka.Record) (*Letter, *wire.Replay) {
	switch wire.Kind(r.Header(wire.HeaderKind)) {
	case wire.KindDeadLetter:
		if d, err := wire.Decode[wire.DeadLetter](r.Value, r.Headers); err == nil {
			return newLetter(d), nil
		}
	case wire.KindReplay:
		if a, err := wire.Decode[wire.Replay](r.Value, r.Headers); err == nil {
			return nil, a
		}
	}
	return nil, nil
}
