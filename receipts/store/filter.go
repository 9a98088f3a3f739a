package store

import (
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
)

// Filter selects messages; zero fields select everything. Everything given
// must hold.
type Filter struct {
	IDs        []string     `json:"ids,omitempty"` // any of them
	OpenID     string       `json:"openid,omitempty"`
	App        string       `json:"app,omitempty"`
	Accounts   []string     `json:"accounts,omitempty"` // any of them
	Reference  string       `json:"reference,omitempty"`
	Template   string       `json:"template,omitempty"`
	Lane       string       `json:"lane,omitempty"`
	CallbackID string       `json:"callback_id,omitempty"`
	ResendOf   string       `json:"resend_of,omitempty"`
	States     []wire.State `json:"states,omitempty"` // any of them
	Kinds      []wire.Kind  `json:"kinds,omitempty"`  // any of them
	ErrCode    int          `json:"errcode,omitempty"`
	From       time.Time    `json:"from,omitzero"`    // first news at or after
	To         time.Time    `json:"to,omitzero"`      // first news before
	NotResent  bool         `json:"unsent,omitempty"` // leave out what was re-sent already
	Failed     bool         `json:"failed,omitempty"` // only what belongs into the report of failures
	// Duplicate selects what the user may have seen twice.
	Duplicate bool `json:"duplicate,omitempty"`
}

// Mark is a place in a list: behind the message with these values.
type Mark struct {
	At      int64  `json:"at"`
	ID      string `json:"id"`
	Variant int    `json:"variant,omitempty"`
}

// Mark is where a list goes on behind this message.
func (m *Message) Mark() Mark { return Mark{m.At, m.ID, m.Variant} }

// where builds conditions whose values travel as parameters only (S56).
type where struct {
	text strings.Builder
	args []any
}

func (w *where) and(cond string, args ...any) {
	if w.text.Len() == 0 {
		w.text.WriteString(" WHERE ")
	} else {
		w.text.WriteString(" AND ")
	}
	for _, a := range args {
		w.args = append(w.args, a)
		cond = strings.Replace(cond, "@", "$"+strconv.Itoa(len(w.args)), 1)
	}
	w.text.WriteString(cond)
}

func (w *where) text1(column, value string) {
	if value != "" {
		w.and(column+" = @", value)
	}
}

func anyOf[T ~string](w *where, column string, vs []T) {
	if len(vs) > 0 {
		w.and(column+" IN ("+strings.TrimSuffix(strings.Repeat("@, ", len(vs)), ", ")+")", anys(vs)...)
	}
}

func (w *where) param(v any) string {
	w.args = append(w.args, v)
	return "$" + strconv.Itoa(len(w.args))
}

func (f Filter) where() *where {
	w := &where{}
	anyOf(w, "id", f.IDs)
	w.text1("openid", f.OpenID)
	w.text1("app", f.App)
	anyOf(w, "account", f.Accounts)
	if f.Reference != "" {
		w.and("reference <> '' AND reference = @", f.Reference) // the words of the index
	}
	w.text1("template", f.Template)
	w.text1("lane", f.Lane)
	if f.CallbackID != "" {
		w.and("callback_id <> '' AND callback_id = @", f.CallbackID)
	}
	w.text1("resend_of", f.ResendOf)
	anyOf(w, "state", f.States)
	anyOf(w, "kind", f.Kinds)
	if f.ErrCode != 0 {
		w.and("errcode = @", f.ErrCode)
	}
	if !f.From.IsZero() {
		w.and("at >= @", f.From.UnixMilli())
	}
	if !f.To.IsZero() {
		w.and("at < @", f.To.UnixMilli())
	}
	if f.NotResent {
		w.and("resent_as = ''")
	}
	if f.Duplicate {
		w.and("possible_duplicate = 1")
	}
	if f.Failed {
		w.and("failed = 1")
	}
	return w
}

// where adds what leaves out the partitions of other days.
func (s *SQL) where(f Filter) *where {
	w := f.where()
	if s.db.Dialect() != sqldb.Postgres {
		return w
	}
	if !f.From.IsZero() {
		w.and("(part = 0 OR part >= @)", partOf(dayOf(f.From.UnixMilli()), wire.KindPush))
	}
	if !f.To.IsZero() {
		w.and("part < @", partOf(dayOf(f.To.UnixMilli())+1, wire.KindPush))
	}
	return w
}

// until is the condition that leaves out the partitions of days after a time.
func (s *SQL) until(at int64) string {
	return " AND part < " + strconv.FormatInt(partOf(dayOf(at)+1, wire.KindPush), 10)
}
