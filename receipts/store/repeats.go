package store

import (
	"context"
	"strconv"
	"time"

	"tidegate/pkg/sqldb"
)

// MaxRepeats bounds the rows that one question about repeats looks at: the
// newest ones of its time.
const MaxRepeats = 100_000

// RepeatQuery selects users' repeats (M9).
type RepeatQuery struct {
	Account string    // empty is every account
	From    time.Time // at or after
	Limit   int       // of each list
}

// Repeats is what users did again too soon.
type Repeats struct {
	Total int64 // rows counted
	Users int64 // different users among them
	// Cut says that there were more than MaxRepeats: then only those since
	// First are counted.
	Cut      bool
	First    int64           // of the oldest row that was counted, Unix milliseconds; 0 if none was
	ByUser   []UserRepeats   // most first
	ByAction []ActionRepeats // most first
	Newest   []Repeat
}

// UserRepeats is how often one user did anything again.
type UserRepeats struct {
	Account, OpenID string
	Count           int64
	First, Last     int64 // Unix milliseconds
}

// ActionRepeats is how often one action was done again, and by how many users.
type ActionRepeats struct {
	Account, Action string
	Count, Users    int64
	Last            int64 // Unix milliseconds
}

// Repeat is one row.
type Repeat struct {
	ID, Account, OpenID, Action, Reason string
	At                                  int64 // Unix milliseconds
}

// Repeats counts users' repeats and shows the newest ones. Rows that come while
// it runs may be in one list and not yet in another.
func (s *SQL) Repeats(ctx context.Context, q RepeatQuery) (*Repeats, error) {
	out := &Repeats{}
	st := q.totals()
	if err := s.db.QueryRow(ctx, st.text, st.args...).Scan(&out.Total, &out.Users, &out.First); err != nil {
		return nil, err
	}
	out.Cut = out.Total == MaxRepeats
	err := s.eachRow(ctx, q.byUser(), func(rows *sqldb.Rows) error {
		var u UserRepeats
		err := rows.Scan(&u.Account, &u.OpenID, &u.Count, &u.First, &u.Last)
		out.ByUser = append(out.ByUser, u)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.eachRow(ctx, q.byAction(), func(rows *sqldb.Rows) error {
		var a ActionRepeats
		err := rows.Scan(&a.Account, &a.Action, &a.Count, &a.Users, &a.Last)
		out.ByAction = append(out.ByAction, a)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, s.eachRow(ctx, q.newest(), func(rows *sqldb.Rows) error {
		var r Repeat
		err := rows.Scan(&r.ID, &r.Account, &r.OpenID, &r.Action, &r.Reason, &r.At)
		out.Newest = append(out.Newest, r)
		return err
	})
}

// statement is a text of SQL with its parameters.
type statement struct {
	text string
	args []any
}

// rows is what a query selects, as a table. Its first words are those of the
// index.
func (q RepeatQuery) rows(columns string, limit int) (string, *where) {
	w := &where{}
	w.and("state = 'repeated'")
	w.and("at >= @", q.From.UnixMilli())
	w.text1("account", q.Account)
	return "(SELECT " + columns + " FROM all_messages" + w.text.String() + " ORDER BY at DESC LIMIT " + strconv.Itoa(limit) + ") AS r", w
}

func (q RepeatQuery) totals() statement {
	from, w := q.rows("account, openid, at", MaxRepeats)
	return statement{"SELECT COUNT(*), COUNT(DISTINCT account || ' ' || openid), COALESCE(MIN(at), 0) FROM " + from, w.args}
}

func (q RepeatQuery) byUser() statement {
	from, w := q.rows("account, openid, at", MaxRepeats)
	text := "SELECT account, openid, COUNT(*), MIN(at), MAX(at) FROM " + from +
		" GROUP BY account, openid ORDER BY COUNT(*) DESC, MAX(at) DESC, account, openid LIMIT " + w.param(q.Limit)
	return statement{text, w.args}
}

func (q RepeatQuery) byAction() statement {
	from, w := q.rows("account, openid, detail, at", MaxRepeats)
	text := "SELECT account, detail, COUNT(*), COUNT(DISTINCT openid), MAX(at) FROM " + from +
		" GROUP BY account, detail ORDER BY COUNT(*) DESC, MAX(at) DESC, account, detail LIMIT " + w.param(q.Limit)
	return statement{text, w.args}
}

func (q RepeatQuery) newest() statement {
	from, w := q.rows("id, account, openid, detail, reason, at", q.Limit)
	return statement{"SELECT id, account, openid, detail, reason, at FROM " + from + " ORDER BY at DESC, id DESC", w.args}
}

func (s *SQL) eachRow(ctx context.Context, st statement, scan func(*sqldb.Rows) error) error {
	rows, err := s.db.Query(ctx, st.text, st.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
