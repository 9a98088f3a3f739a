package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// Entry is one line of the audit: a change that was made.
type Entry struct {
	Version       int64
	At            time.Time
	By            string
	Kind, Subject string
	Old, New      json.RawMessage // nil: not set
	Reason        string
	ExpiresAt     time.Time
	Prev, Hash    string // of the entry before, and of this one with it
}

// sum is the hash over the entry before and everything in this one. Each field
// is preceded by its length, so that nothing can move from one to the next.
func (e Entry) sum() string {
	h := sha256.New()
	for _, f := range []string{
		e.Prev, strconv.FormatInt(e.Version, 10), strconv.FormatInt(millisOf(e.At), 10), e.By, e.Kind, e.Subject,
		string(e.Old), string(e.New), e.Reason, strconv.FormatInt(millisOf(e.ExpiresAt), 10),
	} {
		fmt.Fprintf(h, "%d:", len(f))
		h.Write([]byte(f))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// write adds the entry and makes it the head.
func (e *Entry) write(ctx context.Context, tx *sqldb.Tx) error {
	e.Hash = e.sum()
	if _, err := tx.Exec(ctx, `INSERT INTO control_audit
		(version, changed_at, changed_by, kind, subject, old_value, new_value, reason, expires_at, prev_hash, hash)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		e.Version, e.At.UnixMilli(), e.By, e.Kind, e.Subject, string(e.Old), string(e.New), e.Reason, millisOf(e.ExpiresAt), e.Prev, e.Hash); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE control_head SET hash = $1 WHERE id = 1", e.Hash)
	return err
}

// LogQuery selects entries; empty fields select all.
type LogQuery struct {
	Kind, Subject string
	Before        int64 // only versions below this; 0 for all
	Limit         int   // 1 to 1000
}

const entryColumns = "version, changed_at, changed_by, kind, subject, old_value, new_value, reason, expires_at, prev_hash, hash"

// Log gives entries, the newest first.
func (s *Store) Log(ctx context.Context, q LogQuery) ([]Entry, error) {
	if q.Before <= 0 {
		q.Before = 1<<63 - 1
	}
	var out []Entry
	err := each(ctx, s.db, func(e Entry) error { out = append(out, e); return nil },
		"SELECT "+entryColumns+` FROM control_audit
		WHERE version < $1 AND ($2 = '' OR kind = $2) AND ($3 = '' OR subject = $3)
		ORDER BY version DESC LIMIT $4`, q.Before, q.Kind, q.Subject, min(max(q.Limit, 1), 1000))
	return out, err
}

func each(ctx context.Context, q sqldb.Querier, fn func(Entry) error, text string, args ...any) error {
	rows, err := q.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		var at, expires int64
		var before, after string
		if err := rows.Scan(&e.Version, &at, &e.By, &e.Kind, &e.Subject, &before, &after, &e.Reason, &expires, &e.Prev, &e.Hash); err != nil {
			return err
		}
		e.At, e.ExpiresAt, e.Old, e.New = timeOf(at), timeOf(expires), rawOrNil(before), rawOrNil(after)
		if err := fn(e); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Proof is what Verify found.
type Proof struct {
	Entries int64  // that follow from one another
	Head    string // hash of the last one
	// Broken says what does not fit; empty if all does.
	Broken string
}

// errBroken ends the walk at the first thing that does not fit.
var errBroken = fault.New(fault.Conflict, "verify audit", "broken")

// Verify walks the whole audit and holds the settings against it: entries that
// were edited, taken out or put in, an end that was cut off, and settings that
// no entry explains are found. An error means that it could not be looked at.
func (s *Store) Verify(ctx context.Context) (Proof, error) {
	var p Proof
	err := s.db.View(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		w := walk{last: map[[2]string]Entry{}}
		err := each(ctx, tx, w.next, "SELECT "+entryColumns+" FROM control_audit ORDER BY version")
		if err == nil {
			err = w.end(ctx, tx)
		}
		p = Proof{Entries: w.entries, Head: w.head, Broken: w.broken}
		if w.broken != "" {
			return nil
		}
		return err
	})
	return p, err
}

// walk follows the chain. last has what each setting was left at.
type walk struct {
	entries int64
	head    string
	broken  string
	last    map[[2]string]Entry
}

func (w *walk) fail(format string, args ...any) error {
	w.broken = fmt.Sprintf(format, args...)
	return errBroken
}

func (w *walk) next(e Entry) error {
	at := [2]string{e.Kind, e.Subject}
	switch {
	case e.Version != w.entries+1:
		return w.fail("entry %d follows entry %d: what was between them is missing", e.Version, w.entries)
	case e.Prev != w.head:
		return w.fail("entry %d does not follow from entry %d: one of them was replaced", e.Version, w.entries)
	case e.Hash != e.sum():
		return w.fail("entry %d was edited: its content has another hash", e.Version)
	case string(e.Old) != string(w.last[at].New):
		return w.fail("entry %d says that %s was %s, the entries before leave it at %s", e.Version, e.Subject, orNone(e.Old), orNone(w.last[at].New))
	}
	w.entries, w.head = e.Version, e.Hash
	if e.New == nil {
		delete(w.last, at)
	} else {
		w.last[at] = e
	}
	return nil
}

func (w *walk) end(ctx context.Context, tx *sqldb.Tx) error {
	var version int64
	var hash string
	if err := tx.QueryRow(ctx, "SELECT version, hash FROM control_head WHERE id = 1").Scan(&version, &hash); err != nil {
		return err
	}
	if version != w.entries || hash != w.head {
		return w.fail("the settings are at version %d, the audit ends with entry %d: its end was cut off or changed", version, w.entries)
	}
	rows, err := rowsOf(ctx, tx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		e, ok := w.last[[2]string{r.Kind, r.Subject}]
		if !ok || e.Version != r.Version || string(e.New) != string(r.Value) || e.By != r.By || e.Reason != r.Reason || !e.At.Equal(r.At) || !e.ExpiresAt.Equal(r.ExpiresAt) {
			return w.fail("the setting %s was changed behind the audit: it is %s and no entry says so", r.Subject, orNone(r.Value))
		}
		delete(w.last, [2]string{r.Kind, r.Subject})
	}
	for at := range w.last {
		return w.fail("the setting %s was removed behind the audit: no entry says so", at[1])
	}
	return nil
}

func orNone(v json.RawMessage) string {
	if v == nil {
		return "not set"
	}
	return string(v)
}
