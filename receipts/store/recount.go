package store

import (
	"context"
	"slices"
	"time"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// Deviation is a line of the counts that the rows do not bear out.
type Deviation struct {
	Hour     time.Time  `json:"hour"`
	Account  string     `json:"account"`
	Kind     wire.Kind  `json:"kind"`
	App      string     `json:"app,omitempty"`
	Template string     `json:"template_id,omitempty"`
	Lane     string     `json:"lane,omitempty"`
	State    wire.State `json:"state"`
	ErrCode  int        `json:"errcode,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Counted  int64      `json:"counted"` // what the counts say
	Rows     int64      `json:"rows"`    // what there is
}

// Recounted is what a recount found.
type Recounted struct {
	Rows       int64       `json:"rows"`
	Hours      int         `json:"hours"`
	Deviations []Deviation `json:"deviations"` // at most maxDeviations
	Wrong      int         `json:"wrong"`      // all of them
	Repaired   bool        `json:"repaired"`
}

const maxDeviations = 100

// Recount counts the rows again, an hour of them at a time over one unchanging
// picture, and compares: writers may go on meanwhile, and any difference is one.
// With repair the counts are made right; writers wait for the length of an hour's
// count, and only where there is a difference.
func (s *SQL) Recount(ctx context.Context, repair bool) (*Recounted, error) {
	out := &Recounted{}
	hours, err := s.hours(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range hours {
		var wrong []Deviation
		look := func(ctx context.Context, tx *sqldb.Tx) error {
			counted, err := s.countedIn(ctx, tx, h)
			if err != nil {
				return err
			}
			rows, n, err := s.rowsIn(ctx, tx, h)
			if err != nil {
				return err
			}
			out.Rows += n
			wrong = differences(counted, rows)
			return nil
		}
		if err := s.db.View(ctx, look); err != nil {
			return nil, err
		}
		out.Hours++
		out.Wrong += len(wrong)
		out.Deviations = append(out.Deviations, wrong[:min(len(wrong), maxDeviations-len(out.Deviations))]...)
		if len(wrong) > 0 && repair {
			if err := s.repair(ctx, h); err != nil {
				return nil, err
			}
			out.Repaired = true
		}
	}
	return out, nil
}

// hours lists the hours that have rows or counts.
func (s *SQL) hours(ctx context.Context) ([]int64, error) {
	var out []int64
	err := s.eachRow(ctx, statement{text: "SELECT DISTINCT hour FROM counts"}, func(rows *sqldb.Rows) error {
		var h int64
		err := rows.Scan(&h)
		out = append(out, h)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Hours with rows and no counts: a walk from one row's hour to the next.
	for at := int64(-1 << 62); ; {
		var next int64
		err := s.db.QueryRow(ctx, "SELECT COALESCE(MIN(at), 0) FROM "+s.t.messages.name+" WHERE at >= $1", at).Scan(&next)
		if err != nil {
			return nil, err
		}
		if next == 0 {
			break
		}
		out = append(out, next/hourMillis)
		at = (next/hourMillis + 1) * hourMillis
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (s *SQL) countedIn(ctx context.Context, tx *sqldb.Tx, hour int64) (map[countKey]int64, error) {
	rows, err := tx.Query(ctx, "SELECT account, kind, app, template, lane, state, errcode, reason, CAST(SUM(n) AS BIGINT) FROM counts WHERE hour = $1"+
		" GROUP BY account, kind, app, template, lane, state, errcode, reason", hour)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[countKey]int64{}
	for rows.Next() {
		k, n := countKey{hour: hour}, int64(0)
		if err := rows.Scan(&k.account, &k.kind, &k.app, &k.template, &k.lane, &k.state, &k.errcode, &k.reason, &n); err != nil {
			return nil, err
		}
		out[k] = n
	}
	return out, rows.Err()
}

// rowsIn counts the rows of an hour as the counts would. Grouping by the reason
// as it is leaves the sorts of reasons to one place.
func (s *SQL) rowsIn(ctx context.Context, tx *sqldb.Tx, hour int64) (map[countKey]int64, int64, error) {
	rows, err := tx.Query(ctx, "SELECT account, kind, app, template, lane, state, CASE WHEN failed = 1 THEN errcode ELSE 0 END AS code,"+
		" CASE WHEN failed = 1 THEN reason ELSE '' END AS why, COUNT(*) FROM "+s.t.messages.name+" WHERE at >= $1 AND at < $2"+
		s.between(hour*hourMillis)+" GROUP BY account, kind, app, template, lane, state, code, why", hour*hourMillis, (hour+1)*hourMillis)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	out, total := map[countKey]int64{}, int64(0)
	for rows.Next() {
		k, n := countKey{hour: hour}, int64(0)
		if err := rows.Scan(&k.account, &k.kind, &k.app, &k.template, &k.lane, &k.state, &k.errcode, &k.reason, &n); err != nil {
			return nil, 0, err
		}
		k.reason = reasonClass(k.reason)
		out[k] += n
		total += n
	}
	return out, total, rows.Err()
}

// between leaves out the partitions of other days than that of a time.
func (s *SQL) between(at int64) string {
	if s.db.Dialect() != sqldb.Postgres {
		return ""
	}
	return s.since(partOf(dayOf(at), wire.KindPush)) + s.until(at)
}

func differences(counted, rows map[countKey]int64) []Deviation {
	var keys []countKey
	for k, n := range counted {
		if n != rows[k] {
			keys = append(keys, k)
		}
	}
	for k := range rows {
		if _, ok := counted[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareCounts)
	out := make([]Deviation, len(keys))
	for i, k := range keys {
		out[i] = Deviation{Hour: time.UnixMilli(k.hour * hourMillis).UTC(), Account: k.account, Kind: k.kind, App: k.app, Template: k.template,
			Lane: k.lane, State: k.state, ErrCode: k.errcode, Reason: k.reason, Counted: counted[k], Rows: rows[k]}
	}
	return out
}

// repair makes the counts of an hour those of its rows, while nobody writes.
func (s *SQL) repair(ctx context.Context, hour int64) error {
	return s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.guard(ctx, tx, "pg_advisory_xact_lock"); err != nil {
			return err
		}
		counted, err := s.countedIn(ctx, tx, hour)
		if err != nil {
			return err
		}
		rows, _, err := s.rowsIn(ctx, tx, hour)
		if err != nil {
			return err
		}
		changes := map[countKey]count{}
		for _, d := range differences(counted, rows) {
			k := countKey{hour, d.Account, d.Kind, d.App, d.Template, d.Lane, d.State, d.ErrCode, d.Reason}
			changes[k] = count{int(d.Rows - d.Counted), hour * hourMillis, hour*hourMillis + hourMillis - 1}
		}
		return s.writeCounts(ctx, tx, changes)
	})
}

// countOld counts the rows that a release without these counts has written, once.
func (s *SQL) countOld(ctx context.Context) error {
	var done int64
	if err := s.db.QueryRow(ctx, "SELECT COUNT(*) FROM layout WHERE name = 'counted'").Scan(&done); err != nil || done > 0 {
		return err
	}
	if _, err := s.Recount(ctx, true); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, "INSERT INTO layout (name, value) VALUES ('counted', $1) ON CONFLICT DO NOTHING", s.now().UnixMilli())
	return err
}
