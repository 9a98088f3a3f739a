package store

import (
	"context"

	"tidegate/pkg/wire"
)

// maxFailureLines bounds a report; a deployment has far fewer reasons.
const maxFailureLines = 10_000

// Failure is one line of the report: how many messages ended badly for one
// reason. Reason is one of the texts that came with the errcode: WeChat puts
// a request number into many of them, so the errcode groups where there is one.
type Failure struct {
	Account  string
	App      string
	Template string
	Kind     wire.Kind
	State    wire.State
	ErrCode  int
	Reason   string
	Count    int64
	First    int64 // Unix milliseconds of the first and last one
	Last     int64
}

// Failures groups the failures that a filter selects, the largest first.
func (s *SQL) Failures(ctx context.Context, f Filter) ([]Failure, error) {
	f.Failed = true
	w := f.where()
	rows, err := s.db.Query(ctx, `SELECT account, app, template, kind, state, errcode, MIN(reason), COUNT(*), MIN(at), MAX(at) FROM messages`+w.text.String()+
		` GROUP BY account, app, template, kind, state, errcode, CASE WHEN errcode = 0 THEN reason ELSE '' END
		ORDER BY COUNT(*) DESC, account, app, template, kind, state, errcode, MIN(reason) LIMIT `+w.param(maxFailureLines), w.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Failure
	for rows.Next() {
		var l Failure
		if err := rows.Scan(&l.Account, &l.App, &l.Template, &l.Kind, &l.State, &l.ErrCode, &l.Reason, &l.Count, &l.First, &l.Last); err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, rows.Err()
}
