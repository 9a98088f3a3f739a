package store

import (
	"context"
	"strings"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

const messageColumns = "id, variant, part, identity_hash, kind, account, openid, app, lane, template, reference, " +
	"callback_id, resend_of, resent_as, state, reason, errcode, msg_id, attempts, possible_duplicate, contradiction, " +
	"failed, detail, at, queued_at, accepted_at, settled_at, updated_at"

func (m *Message) values() []any {
	return []any{m.ID, m.Variant, m.Part, m.IdentityHash, string(m.Kind), m.Account, m.OpenID, m.App, m.Lane, m.Template, m.Reference,
		m.CallbackID, m.ResendOf, m.ResentAs, string(m.State), m.Reason, m.ErrCode, m.MsgID, m.Attempts, bit(m.PossibleDuplicate), m.Contradiction,
		bit(m.failed()), m.Detail, m.At, m.QueuedAt, m.AcceptedAt, m.SettledAt, m.UpdatedAt}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func scanMessage(rows *sqldb.Rows) (*Message, error) {
	var m Message
	var duplicate, failed int
	err := rows.Scan(&m.ID, &m.Variant, &m.Part, &m.IdentityHash, &m.Kind, &m.Account, &m.OpenID, &m.App, &m.Lane, &m.Template, &m.Reference,
		&m.CallbackID, &m.ResendOf, &m.ResentAs, &m.State, &m.Reason, &m.ErrCode, &m.MsgID, &m.Attempts, &duplicate, &m.Contradiction,
		&failed, &m.Detail, &m.At, &m.QueuedAt, &m.AcceptedAt, &m.SettledAt, &m.UpdatedAt)
	m.PossibleDuplicate = duplicate != 0
	return &m, err
}

// readMessages runs a query over the messages; rest is what follows FROM.
func (s *SQL) readMessages(ctx context.Context, q sqldb.Querier, rest string, args ...any) ([]*Message, error) {
	rows, err := q.Query(ctx, "SELECT "+messageColumns+" FROM "+s.t.messages.name+rest, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*Message
	for rows.Next() {
		m, err := scanMessage(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, rows.Err()
}

// errRace says that another transaction made a row between our look and our
// insertion; the batch starts again and sees it.
var errRace = fault.New(fault.Unavailable, "insert messages", "another writer was faster")

// insertMessages puts new rows, in the order of their ids so that two writers
// never wait for each other.
func (s *SQL) insertMessages(ctx context.Context, tx *sqldb.Tx, ms []*Message) error {
	n, err := s.insert(ctx, tx, s.t.messages, len(ms), func(i int) []any { return ms[i].values() }, " ON CONFLICT DO NOTHING")
	if err == nil && int(n) != len(ms) {
		return errRace
	}
	return err
}

// updateMessages rewrites rows that this transaction has locked.
func (s *SQL) updateMessages(ctx context.Context, tx *sqldb.Tx, ms []*Message) error {
	_, err := s.insert(ctx, tx, s.t.messages, len(ms), func(i int) []any { return ms[i].values() },
		" ON CONFLICT ("+s.t.messages.key+") DO UPDATE SET "+setAll(messageColumns))
	return err
}

// setAll writes "c = excluded.c" for every column but the key and what never
// changes.
func setAll(columns string) string {
	var sets []string
	for c := range strings.SplitSeq(columns, ", ") {
		if c != "id" && c != "variant" && c != "part" && c != "at" {
			sets = append(sets, c+" = excluded."+c)
		}
	}
	return strings.Join(sets, ", ")
}
