package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// Partitions, on PostgreSQL.
//
// A row lies in the partition of the UTC day of its message's birth, callbacks
// apart from the rest because they are kept for another time. Every writer finds
// the same partition, since birth is a fact of the message that all letters tell.
// News that does not tell it (letters of an earlier release) is looked for
// everywhere, and keeps other writers out while it may make a row, so that two
// partitions cannot hold the same message.
//
// Partition 0 is the table of before: what was born before there were partitions,
// or on a day that has none.

const (
	everything = 0 // since which partition to look, where it may be anywhere
	// daysAhead is how many days have their partitions before they begin (a clock may
	// be ahead of ours by a day), and
	// daysBack how far a room that was away makes up for.
	daysAhead = 1
	daysBack  = 10
	// graceDays leaves a rolling upgrade its time: until then rows go where the
	// earlier release finds them too.
	graceDays = 2
)

// dayOf is the UTC day of a time in Unix milliseconds.
func dayOf(ms int64) int64 { return ms / dayMillis }

const dayMillis = 24 * 60 * 60 * 1000

// partOf is the partition of a day for a kind.
func partOf(day int64, k wire.Kind) int64 {
	if k == wire.KindCallback {
		return 2*day + 1
	}
	return 2 * day
}

// part says where a new row goes.
func (s *SQL) part(at int64, k wire.Kind) int64 {
	if p := partOf(dayOf(at), k); (*s.parts.Load())[p] {
		return p
	}
	return 0
}

// since is the condition that leaves out older partitions. The number stands in
// the text, so that the planner sees it; it changes once a day.
func (s *SQL) since(part int64) string {
	if part <= everything || s.db.Dialect() != sqldb.Postgres {
		return ""
	}
	return " AND (part = 0 OR part >= " + strconv.FormatInt(part, 10) + ")"
}

// recent is the first partition of yesterday: WeChat reports within hours of the
// birth of nearly every message. Joining the others is left to JoinLate.
func (s *SQL) recent() int64 { return partOf(dayOf(s.now().UnixMilli())-1, wire.KindPush) }

// sinceOf is the first partition that can hold the rows of some news.
func (s *SQL) sinceOf(mine []News, found []target) int64 {
	since := int64(1 << 62)
	for _, n := range mine {
		if n.Born == 0 {
			return everything
		}
		since = min(since, s.part(n.Born, wire.KindPush))
	}
	for _, t := range found {
		if t.part > 0 {
			since = min(since, t.part)
		}
	}
	return since
}

// guardKeys keeps writers apart that could make the same message in two
// partitions: who knows births shares, who does not excludes.
func (s *SQL) guardKeys(ctx context.Context, tx *sqldb.Tx, mine []News) error {
	for _, n := range mine {
		if n.Born == 0 {
			return s.guard(ctx, tx, "pg_advisory_xact_lock")
		}
	}
	return s.guard(ctx, tx, "pg_advisory_xact_lock_shared")
}

func (s *SQL) guard(ctx context.Context, tx *sqldb.Tx, lock string) error {
	if s.db.Dialect() != sqldb.Postgres {
		return nil // one writer
	}
	_, err := tx.Exec(ctx, "SELECT "+lock+"(hashtext('tidegate receipts'), hashtext(current_schema()))")
	return err
}

// MakeParts makes the partitions of the days to come, and learns of those that
// other processes have made or dropped. It may run everywhere at once.
func (s *SQL) MakeParts(ctx context.Context) error {
	if s.db.Dialect() != sqldb.Postgres {
		s.parts.Store(&map[int64]bool{})
		return nil
	}
	have, err := s.readParts(ctx, s.db)
	if err != nil {
		return err
	}
	s.parts.Store(&have)
	today := dayOf(s.now().UnixMilli())
	if have[partOf(today+daysAhead, wire.KindPush)] && have[partOf(today+daysAhead, wire.KindCallback)] {
		return nil
	}
	err = s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('tidegate receipts partitions'), hashtext(current_schema()))"); err != nil {
			return err
		}
		if have, err = s.readParts(ctx, tx); err != nil {
			return err
		}
		first, err := s.firstDay(ctx, tx, today)
		if err != nil {
			return err
		}
		for day := max(first, today-daysBack); day <= today+daysAhead; day++ {
			for _, k := range []wire.Kind{wire.KindPush, wire.KindCallback} {
				if p := partOf(day, k); !have[p] {
					if err := s.makePart(ctx, tx, p); err != nil {
						return err
					}
					have[p] = true
				}
			}
		}
		return nil
	})
	if err == nil {
		s.parts.Store(&have)
	}
	return err
}

// firstDay is the first day that has partitions: yesterday in a fresh database, and
// where rows of before are in some days, when every process writes as we do.
func (s *SQL) firstDay(ctx context.Context, tx *sqldb.Tx, today int64) (int64, error) {
	var rows bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM messages)").Scan(&rows); err != nil {
		return 0, err
	}
	first := today - 1
	if rows {
		first = today + graceDays
	}
	if _, err := tx.Exec(ctx, "INSERT INTO layout (name, value) VALUES ('first_day', $1) ON CONFLICT DO NOTHING", first); err != nil {
		return 0, err
	}
	err := tx.QueryRow(ctx, "SELECT value FROM layout WHERE name = 'first_day'").Scan(&first)
	return first, err
}

// parents are the partitioned tables, by what the names of partitions begin with.
func (s *SQL) parents() []parent {
	return []parent{{"messages_p", s.t.messages.name}, {"steps_p", s.t.steps.name}, {"letters_p", s.t.letters.name}}
}

type parent struct{ prefix, table string }

// makePart makes a partition of each table. Attaching one disturbs neither
// readers nor writers, which making it in place would.
func (s *SQL) makePart(ctx context.Context, tx *sqldb.Tx, part int64) error {
	for _, p := range s.parents() {
		prefix, parent := p.prefix, p.table
		if parent == s.t.letters.name && part%2 == 1 {
			continue // callbacks have none
		}
		name := prefix + strconv.FormatInt(part, 10)
		for _, q := range []string{
			"CREATE TABLE IF NOT EXISTS " + name + " (LIKE " + parent + " INCLUDING DEFAULTS)",
			fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)", parent, name, part, part+1),
		} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return fault.Wrap(fault.KindOf(err), "make partition "+name, err)
			}
		}
	}
	return nil
}

// readParts lists the partitions of days.
func (s *SQL) readParts(ctx context.Context, q sqldb.Querier) (map[int64]bool, error) {
	rows, err := q.Query(ctx, "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'all_messages'::regclass")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[int64]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		if n, err := strconv.ParseInt(strings.TrimPrefix(name, "messages_p"), 10, 64); err == nil {
			out[n] = true
		}
	}
	return out, rows.Err()
}

// dropWait bounds how long dropping a partition waits for its readers, since
// everybody else waits behind it.
const dropWait = "500ms"

// errBusy says that somebody reads what is to be dropped.
var errBusy = fault.New(fault.Unavailable, "drop partitions", "rows are being read; the next round tries again")

// dropParts drops whole days of some kinds that ended before a time, with their
// counts, and tells how many messages went.
func (s *SQL) dropParts(ctx context.Context, kinds []wire.Kind, before int64) (int, error) {
	total := 0
	for part := range *s.parts.Load() {
		callbacks := part%2 == 1
		if part/2 >= dayOf(before) || callbacks != (kinds[0] == wire.KindCallback) {
			continue
		}
		n, err := s.dropPart(ctx, part, kinds)
		if total += n; err != nil && !errors.Is(err, errBusy) {
			return total, err
		}
	}
	if total == 0 {
		return 0, nil
	}
	return total, s.MakeParts(ctx)
}

func (s *SQL) dropPart(ctx context.Context, part int64, kinds []wire.Kind) (int, error) {
	var n int64
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+dropWait+"'"); err != nil {
			return err
		}
		for _, p := range s.parents() {
			if _, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+p.prefix+strconv.FormatInt(part, 10)); err != nil {
				if fault.KindOf(err) == fault.Unavailable {
					return errBusy
				}
				return err
			}
		}
		w := &where{}
		w.and("hour >= @", part/2*24)
		w.and("hour < @", (part/2+1)*24)
		anyOf(w, "kind", kinds)
		err := tx.QueryRow(ctx, "SELECT CAST(COALESCE(SUM(n), 0) AS BIGINT) FROM counts"+w.text.String(), w.args...).Scan(&n)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM counts"+w.text.String(), w.args...)
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}
