package store

import (
	"cmp"
	"context"
	"slices"

	"tidegate/pkg/sqldb"
)

func (s *SQL) writeSteps(ctx context.Context, tx *sqldb.Tx, w *work) error {
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
	_, err := s.insert(ctx, tx, s.t.steps, len(lines), func(i int) []any {
		m, st := &lines[i].row.now, lines[i].row.steps[lines[i].digest]
		return []any{m.ID, m.Variant, m.Part, lines[i].digest, st.Source, string(st.State), st.At, st.Attempt, st.Reason, st.ErrCode, st.Event, st.Detail, st.Line}
	}, " ON CONFLICT DO NOTHING")
	return err
}

func (s *SQL) writeLetters(ctx context.Context, tx *sqldb.Tx, w *work) error {
	var rows []*row
	for _, r := range w.sorted() {
		if len(r.letter) > 0 {
			rows = append(rows, r)
		}
	}
	_, err := s.insert(ctx, tx, s.t.letters, len(rows), func(i int) []any {
		return []any{rows[i].now.ID, rows[i].now.Variant, rows[i].now.Part, rows[i].letter}
	}, " ON CONFLICT DO NOTHING")
	return err
}
