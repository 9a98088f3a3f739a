package store

import (
	"context"
	"strconv"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

const (
	// MaxPage is the most that List gives at once.
	MaxPage = 500
	// eachPage is how many rows Each holds at once.
	eachPage = 1000
	// maxSteps bounds the story of one message; a message that was tried more
	// often shows the first ones.
	maxSteps = 500
)

// Get reads the messages of an id: one, or, where identities share it,
// several. The error is fault.NotFound if there is none.
func (s *SQL) Get(ctx context.Context, id string) ([]*Message, error) {
	ms, err := s.readMessages(ctx, s.db, " WHERE id = $1 ORDER BY variant", id)
	if err == nil && len(ms) == 0 {
		err = fault.New(fault.NotFound, "find message", "no message has the id %q", id)
	}
	return ms, err
}

// Steps reads the story of a message in the order of its times; news of one
// millisecond is ordered by rank, as it happened.
func (s *SQL) Steps(ctx context.Context, id string, variant int) ([]Step, error) {
	rows, err := s.db.Query(ctx, "SELECT source, state, at, attempt, reason, errcode, event, detail, line FROM "+s.t.steps.name+
		" WHERE id = $1 AND variant = $2 ORDER BY at, attempt, digest LIMIT "+strconv.Itoa(maxSteps), id, variant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Step
	for rows.Next() {
		var st Step
		if err := rows.Scan(&st.Source, &st.State, &st.At, &st.Attempt, &st.Reason, &st.ErrCode, &st.Event, &st.Detail, &st.Line); err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	sortSteps(out)
	return out, rows.Err()
}

// Letter reads the encoded letter of a push; fault.NotFound if the pushes
// topic has not told it yet.
func (s *SQL) Letter(ctx context.Context, id string, variant int) ([]byte, error) {
	var b []byte
	err := s.db.QueryRow(ctx, "SELECT letter FROM "+s.t.letters.name+" WHERE id = $1 AND variant = $2", id, variant).Scan(&b)
	return b, err
}

// List reads up to limit messages, newest first, behind the mark. Paging is
// stable: what is inserted meanwhile is either ahead of the first page or in
// its place behind the mark, and nothing comes twice or is left out.
func (s *SQL) List(ctx context.Context, f Filter, after *Mark, limit int) ([]*Message, error) {
	return s.list(ctx, f, after, min(max(limit, 1), MaxPage))
}

func (s *SQL) list(ctx context.Context, f Filter, after *Mark, limit int) ([]*Message, error) {
	if after != nil && (f.To.IsZero() || f.To.UnixMilli() > after.At) {
		f.To = time.UnixMilli(after.At + 1) // leaves out the partitions of later days
	}
	w := s.where(f)
	if after != nil {
		w.and("(at, id, variant) < (@, @, @)", after.At, after.ID, after.Variant)
	}
	return s.readMessages(ctx, s.db, w.text.String()+" ORDER BY at DESC, id DESC, variant DESC LIMIT "+w.param(limit), w.args...)
}

// Each gives every message that a filter selects to a function, newest first, a
// page at a time: memory does not grow with their number, and no transaction stays
// open. What is inserted meanwhile is left out unless it lies behind. The function's
// error ends it and is returned.
func (s *SQL) Each(ctx context.Context, f Filter, give func(*Message) error) error {
	var after *Mark
	for {
		ms, err := s.list(ctx, f, after, eachPage)
		if err != nil {
			return err
		}
		for _, m := range ms {
			if err := give(m); err != nil {
				return err
			}
		}
		if len(ms) < eachPage {
			return nil
		}
		mark := ms[len(ms)-1].Mark()
		after = &mark
	}
}

// Count counts messages up to limit; a result of limit means "at least".
func (s *SQL) Count(ctx context.Context, f Filter, limit int) (int, error) {
	return s.count(ctx, s.db, f, limit)
}

func (s *SQL) count(ctx context.Context, q sqldb.Querier, f Filter, limit int) (int, error) {
	w := s.where(f)
	var n int
	err := q.QueryRow(ctx, "SELECT COUNT(*) FROM (SELECT 1 AS one FROM "+s.t.messages.name+w.text.String()+" LIMIT "+w.param(limit)+") AS found", w.args...).Scan(&n)
	return n, err
}
