package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// maxNames bounds what one command keeps in memory: names of chosen letters, and
// of replays.
const maxNames = 1_000_000

// Book is the topic of dead letters.
type Book struct {
	Kafka  kafka.Config
	Topics wire.Topics
}

// audits are what is known of replays, by the dead letter's whole name.
type audits map[string]*wire.Replay

func (a audits) add(r *wire.Replay) error {
	if old := a[r.Of]; old != nil && old.Attempt >= r.Attempt {
		return nil
	}
	if len(a) >= maxNames {
		return fmt.Errorf("more than %d replays lie in the topic: give a later --since", maxNames)
	}
	a[r.Of] = r
	return nil
}

// mark tells a letter what became of it.
func (a audits) mark(l *Letter) {
	if r := a[l.name]; r != nil {
		l.Replays, l.Replayed, l.By = r.Attempt, time.UnixMilli(r.At), r.By
	}
}

// scan goes over the letters that a filter means. What is neither a dead letter
// nor a replay is counted.
func (b Book) scan(ctx context.Context, f Filter, each func(*Letter) error) (audits, int, error) {
	known, strange := audits{}, 0
	err := kafka.Scan(ctx, b.Kafka, b.Topics.DeadLetters(), f.Since, func(r kafka.Record) error {
		l, a := read(r)
		switch {
		case a != nil:
			return known.add(a)
		case l == nil:
			strange++
		case f.matches(l):
			return each(l)
		}
		return nil
	})
	return known, strange, err
}

// Count is how many letters share an account, a room and a reason.
type Count struct {
	Account string `json:"account,omitempty"`
	Room    string `json:"room"`
	Reason  string `json:"reason"`
	Letters int    `json:"letters"`
}

// maxCounts bounds the table of counts; the rest is one line.
const maxCounts = 200

// List is what a filter means.
type List struct {
	Letters []*Letter // the newest, newest first
	Total   int
	Strange int // records of the topic that this release does not know
	Counts  []Count
}

// List reads the topic and keeps the newest letters, up to limit.
func (b Book) List(ctx context.Context, f Filter, limit int) (List, error) {
	var out List
	counts := map[Count]int{}
	seen := map[string]bool{}
	known, strange, err := b.scan(ctx, f, func(l *Letter) error {
		if seen[l.name] { // written twice, by a room that died in between
			return nil
		}
		if len(seen) < maxNames { // beyond that a letter may be counted twice
			seen[l.name] = true
		}
		out.Total++
		k := Count{Account: l.Account, Room: l.Room, Reason: l.Reason}
		if _, there := counts[k]; !there && len(counts) >= maxCounts {
			k = Count{Reason: "other"}
		}
		counts[k]++
		l.Value, l.Headers = nil, nil // a list needs no bodies
		out.Letters = append(out.Letters, l)
		if len(out.Letters) > 2*limit {
			out.Letters = newest(out.Letters, limit)
		}
		return nil
	})
	if err != nil {
		return List{}, err
	}
	out.Strange, out.Letters = strange, newest(out.Letters, limit)
	for _, l := range out.Letters {
		known.mark(l)
	}
	for k, n := range counts {
		k.Letters = n
		out.Counts = append(out.Counts, k)
	}
	slices.SortFunc(out.Counts, func(x, y Count) int {
		return cmp.Or(cmp.Compare(y.Letters, x.Letters), cmp.Compare(x.Account, y.Account), cmp.Compare(x.Reason, y.Reason))
	})
	return out, nil
}

func newest(all []*Letter, limit int) []*Letter {
	slices.SortStableFunc(all, func(x, y *Letter) int { return cmp.Compare(y.At, x.At) })
	n := min(len(all), limit)
	clear(all[n:])
	return all[:n]
}

// ErrNone says that no dead letter has this name.
var ErrNone = errors.New("no dead letter has this name or message id; 'tidegate deadletters list' shows them, --since looks further back")

// errEnough ends a scan.
var errEnough = errors.New("enough")

// Find gives the letter with this name, or of this message, whole.
func (b Book) Find(ctx context.Context, name string, since time.Time) (*Letter, error) {
	var found *Letter
	known, _, err := b.scan(ctx, Filter{Names: []string{name}, Since: since}, func(l *Letter) error {
		if found != nil && found.name != l.name {
			return fmt.Errorf("%s means several dead letters: %s and %s; give one of these names", name, found.Name(), l.Name())
		}
		found = l
		return nil
	})
	if err == nil && found == nil {
		err = ErrNone
	}
	if err != nil {
		return nil, err
	}
	known.mark(found)
	return found, nil
}
