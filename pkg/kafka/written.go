package kafka

import (
	"context"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/IBM/sarama"
)

// Place is one record's address.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Ages between which a record's time is searched: each is a twentieth more than
// the one before, from half a second to more than a year.
const (
	youngest = 500 * time.Millisecond
	ageStep  = 1.05
	ageSteps = 383
)

func ageAt(i int) time.Duration {
	return time.Duration(float64(youngest) * math.Pow(ageStep, float64(i)))
}

// WrittenAt tells when records were written, to a twentieth of their age and
// never later than they were. It asks the brokers' time index, so nothing that
// users wrote is read, and the right to describe a topic is enough. Ten questions
// per leader serve any number of records. Ask only about records that are there; a
// partition that cannot be asked about is missing.
//
// Timestamps are those of the producers, or of the brokers as the topic is set;
// where they are not in the order of offsets the answer is that of a neighbour.
func (a *Admin) WrittenAt(ctx context.Context, places []Place, now time.Time) (map[Place]time.Time, error) {
	out := make(map[Place]time.Time, len(places))
	for len(places) > 0 { // one record of each partition at a time
		var pass, rest []Place
		taken := map[Place]bool{}
		for _, p := range places {
			if at := (Place{Topic: p.Topic, Partition: p.Partition}); !taken[at] {
				taken[at] = true
				pass = append(pass, p)
				continue
			}
			rest = append(rest, p)
		}
		found := map[Place]time.Time{} // of this pass: a search may outlive its caller
		err := a.ask(ctx, "search the time of records", func(c *adminConn) error { return search(c.admin, pass, now, found) })
		if err != nil {
			return out, err
		}
		maps.Copy(out, found)
		places = rest
	}
	return out, nil
}

// bracket is what is known of one record: it is older than ageAt(low) and not
// older than ageAt(high).
type bracket struct{ low, high int }

func search(admin sarama.ClusterAdmin, places []Place, now time.Time, out map[Place]time.Time) error {
	open := make(map[Place]bracket, len(places))
	for _, p := range places {
		open[p] = bracket{-1, ageSteps}
	}
	var last error
	for len(open) > 0 {
		ask := map[string]map[int32]int64{}
		for p, b := range open {
			if ask[p.Topic] == nil {
				ask[p.Topic] = map[int32]int64{}
			}
			ask[p.Topic][p.Partition] = now.Add(-ageAt((b.low + b.high) / 2)).UnixMilli()
		}
		res, err := admin.ListOffsets(ask, nil)
		if err != nil {
			return err
		}
		for p, b := range open {
			r := res[p.Topic][p.Partition]
			if err := firstErr(r); err != nil {
				last = fmt.Errorf("%s/%d at %d: %w", p.Topic, p.Partition, p.Offset, err)
				delete(open, p)
				continue
			}
			if at, done := b.narrow(r, p.Offset, now); done {
				out[p] = at
				delete(open, p)
				continue
			}
			open[p] = b
		}
	}
	if len(out) == 0 {
		return last
	}
	return nil
}

// narrow takes one answer: the first record that is no older than the middle of
// the bracket. done comes with the time: the record's own where the answer named
// it, else the older end of what is left.
func (b *bracket) narrow(r *sarama.OffsetResult, offset int64, now time.Time) (at time.Time, done bool) {
	middle := (b.low + b.high) / 2
	switch {
	case r.Offset == offset && r.Timestamp > 0:
		return time.UnixMilli(r.Timestamp), true
	case r.Offset < 0 || r.Offset > offset: // nothing so young, or only later records
		b.low = middle
	default:
		b.high = middle
	}
	if b.high-b.low > 1 {
		return time.Time{}, false
	}
	return now.Add(-ageAt(b.high)), true
}
