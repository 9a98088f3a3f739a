package store

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	"tidegate/pkg/sqldb"
)

// slots is over how many lines each tally is spread, so that transactions that
// run at once seldom wait for each other's counts.
const slots = 8

func writeSteps(ctx context.Context, tx *sqldb.Tx, w *work) error {
	const columns, width = "id, variant, digest, source, state, at, attempt, reason, errcode, event, detail", 11
	type line struct {
		row    *row
		digest string
	}
	var lines []line
	for _, r := range w.sorted() {
		for d := range r.steps {
			lines = append(lines, line{r, d})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.row.now.ID, b.row.now.ID), cmp.Compare(a.row.now.Variant, b.row.now.Variant), cmp.Compare(a.digest, b.digest))
	})
	for _, chunk := range chunks(lines) {
		var args []any
		for _, l := range chunk {
			st := l.row.steps[l.digest]
			args = append(args, l.row.now.ID, l.row.now.Variant, l.digest, st.Source, st.State, st.At, st.Attempt, st.Reason, st.ErrCode, st.Event, st.Detail)
		}
		_, err := tx.Exec(ctx, "INSERT INTO steps ("+columns+") VALUES "+values(len(chunk), width)+
			" ON CONFLICT (id, variant, digest) DO NOTHING", args...)
		if err != nil {
			return err
		}
	}
	return nil
}

func writeLetters(ctx context.Context, tx *sqldb.Tx, w *work) error {
	var rows []*row
	for _, r := range w.sorted() {
		if len(r.letter) > 0 {
			rows = append(rows, r)
		}
	}
	for _, chunk := range chunks(rows) {
		var args []any
		for _, r := range chunk {
			args = append(args, r.now.ID, r.now.Variant, r.letter)
		}
		_, err := tx.Exec(ctx, "INSERT INTO letters (id, variant, letter) VALUES "+values(len(chunk), 3)+
			" ON CONFLICT (id, variant) DO NOTHING", args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// writeTallies adds the changes to the counts. It is the last thing in every
// transaction, since its lines are the ones that all of them want.
func writeTallies(ctx context.Context, tx *sqldb.Tx, t map[tallyKey]int) error {
	keys := make([]tallyKey, 0, len(t))
	for k, n := range t {
		if n != 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b tallyKey) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.account, b.account), cmp.Compare(a.kind, b.kind), cmp.Compare(a.state, b.state))
	})
	slot := rand.IntN(slots)
	for _, chunk := range chunks(keys) {
		var args []any
		for _, k := range chunk {
			args = append(args, k.day, k.account, k.kind, k.state, slot, t[k])
		}
		_, err := tx.Exec(ctx, "INSERT INTO tallies (day, account, kind, state, slot, n) VALUES "+values(len(chunk), 6)+
			" ON CONFLICT (day, account, kind, state, slot) DO UPDATE SET n = tallies.n + excluded.n", args...)
		if err != nil {
			return err
		}
	}
	return nil
}
