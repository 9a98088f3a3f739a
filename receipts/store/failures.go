package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// maxFailureLines bounds a report; a deployment has far fewer reasons.
const maxFailureLines = 10_000

// Failure is one line of the report: how many messages ended badly for one sort
// of reason, without the numbers that make each of WeChat's texts unique.
type Failure struct {
	Account  string
	App      string
	Template string
	Kind     wire.Kind
	State    wire.State
	ErrCode  int
	Reason   string
	Count    int64
	// First and Last are the times, in Unix milliseconds, of the first and the last
	// one that ever ended so within the period; one of them may have gone on since.
	First int64
	Last  int64
}

// Failures groups the failures that a filter selects, the largest first. Whole
// hours come from the counts, so that the answer does not depend on how many rows
// there are; what is left of the first and the last hour is read from the rows.
// Of a filter that names more than the counts know, all is read from the rows.
func (s *SQL) Failures(ctx context.Context, f Filter) ([]Failure, error) {
	f.Failed = true
	lines := map[failureKey]Failure{}
	begin, end, whole := f.wholeHours()
	if !whole {
		err := s.failedRows(ctx, f, lines)
		return sortFailures(lines), err
	}
	if err := s.failedCounts(ctx, f, begin, end, lines); err != nil {
		return nil, err
	}
	if !f.From.IsZero() && f.From.UnixMilli() < begin*hourMillis {
		edge := f
		edge.To = earliest(f.To, time.UnixMilli(begin*hourMillis))
		if err := s.failedRows(ctx, edge, lines); err != nil {
			return nil, err
		}
	}
	if !f.To.IsZero() && end >= begin && f.To.UnixMilli() > end*hourMillis {
		edge := f
		edge.From = time.UnixMilli(end * hourMillis)
		if err := s.failedRows(ctx, edge, lines); err != nil {
			return nil, err
		}
	}
	return sortFailures(lines), nil
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// wholeHours gives the hours [begin, end) that lie in the filter's time, and
// whether the counts know everything that it names. end is below begin where both
// times lie in one hour.
func (f Filter) wholeHours() (begin, end int64, ok bool) {
	begin, end = 0, 1<<40
	if !f.From.IsZero() {
		begin = (f.From.UnixMilli() + hourMillis - 1) / hourMillis
	}
	if !f.To.IsZero() {
		end = f.To.UnixMilli() / hourMillis
	}
	ok = len(f.IDs) == 0 && f.OpenID+f.Reference+f.CallbackID+f.ResendOf == "" && !f.NotResent && !f.Duplicate
	return begin, end, ok
}

type failureKey struct {
	account, app, template string
	kind                   wire.Kind
	state                  wire.State
	errcode                int
	reason                 string
}

func addFailure(lines map[failureKey]Failure, l Failure) {
	l.Reason = reasonClass(l.Reason)
	k := failureKey{l.Account, l.App, l.Template, l.Kind, l.State, l.ErrCode, l.Reason}
	old := lines[k]
	l.Count += old.Count
	l.First, l.Last = earlier(old.First, l.First), max(old.Last, l.Last)
	lines[k] = l
}

const failureGroup = "account, app, template, kind, state, errcode, reason"

func (s *SQL) failedCounts(ctx context.Context, f Filter, begin, end int64, lines map[failureKey]Failure) error {
	var failed []wire.State
	for _, st := range wire.States() {
		if st.Failure && (len(f.States) == 0 || slices.Contains(f.States, st.State)) {
			failed = append(failed, st.State)
		}
	}
	if len(failed) == 0 || begin >= end {
		return nil
	}
	w := Filter{App: f.App, Accounts: f.Accounts, Template: f.Template, States: failed, Kinds: f.Kinds, ErrCode: f.ErrCode}.where()
	w.and("hour >= @", begin)
	w.and("hour < @", end)
	return s.eachRow(ctx, statement{"SELECT " + failureGroup + ", CAST(SUM(n) AS BIGINT), MIN(first_at), MAX(last_at) FROM counts" + w.text.String() +
		" GROUP BY " + failureGroup + " HAVING SUM(n) > 0 ORDER BY SUM(n) DESC LIMIT " + w.param(maxFailureLines), w.args}, scanFailure(lines))
}

func (s *SQL) failedRows(ctx context.Context, f Filter, lines map[failureKey]Failure) error {
	w := s.where(f)
	return s.eachRow(ctx, statement{"SELECT " + failureGroup + ", COUNT(*), MIN(at), MAX(at) FROM " + s.t.messages.name + w.text.String() +
		" GROUP BY " + failureGroup, w.args}, scanFailure(lines))
}

func scanFailure(lines map[failureKey]Failure) func(*sqldb.Rows) error {
	return func(rows *sqldb.Rows) error {
		var l Failure
		err := rows.Scan(&l.Account, &l.App, &l.Template, &l.Kind, &l.State, &l.ErrCode, &l.Reason, &l.Count, &l.First, &l.Last)
		addFailure(lines, l)
		return err
	}
}

func sortFailures(lines map[failureKey]Failure) []Failure {
	out := make([]Failure, 0, len(lines))
	for _, l := range lines {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Account, b.Account), cmp.Compare(a.App, b.App), cmp.Compare(a.Template, b.Template),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State), cmp.Compare(a.ErrCode, b.ErrCode), cmp.Compare(a.Reason, b.Reason))
	})
	return out[:min(len(out), maxFailureLines)]
}
