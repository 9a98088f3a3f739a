package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tidegate/pkg/wire"
)

// Tally is how many messages of an account and kind are in a state.
type Tally struct {
	Account string
	Kind    wire.Kind
	State   wire.State
	N       int64
}

// Tallies reads the counts of the hours that lie in [from, to), beginning and
// ending with whole hours; zero times are open ends. They equal the rows at every
// moment.
func (s *SQL) Tallies(ctx context.Context, from, to time.Time) ([]Tally, error) {
	w := &where{}
	if !from.IsZero() {
		w.and("hour >= @", from.UnixMilli()/hourMillis)
	}
	if !to.IsZero() {
		w.and("hour < @", (to.UnixMilli()+hourMillis-1)/hourMillis)
	}
	rows, err := s.db.Query(ctx, "SELECT account, kind, state, CAST(SUM(n) AS BIGINT) FROM counts"+w.text.String()+
		" GROUP BY account, kind, state HAVING SUM(n) <> 0 ORDER BY account, kind, state", w.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Tally
	for rows.Next() {
		var t Tally
		if err := rows.Scan(&t.Account, &t.Kind, &t.State, &t.N); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, rows.Err()
}

// Sum is the conservation sum of one account and kind: Intents is the sum of
// the buckets by construction, so a loss shows as a difference from what the
// doors counted (G30).
type Sum struct {
	Account string
	Kind    wire.Kind
	Intents int64
	Buckets map[wire.Bucket]int64
}

// Sums groups tallies by the buckets of wire's table.
func Sums(ts []Tally) []Sum {
	type key struct {
		account string
		kind    wire.Kind
	}
	by := map[key]*Sum{}
	for _, t := range ts {
		k := key{t.Account, t.Kind}
		if by[k] == nil {
			by[k] = &Sum{Account: t.Account, Kind: t.Kind, Buckets: map[wire.Bucket]int64{}}
		}
		info, _ := t.State.Info()
		by[k].Intents += t.N
		by[k].Buckets[info.Bucket] += t.N
	}
	out := make([]Sum, 0, len(by))
	for _, s := range by {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

func sortSteps(steps []Step) {
	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.State.Rank(), b.State.Rank()))
	})
}
