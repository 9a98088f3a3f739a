package store

import (
	"cmp"
	"slices"

	"tidegate/pkg/wire"
)

// ref is how WeChat names a message.
type ref struct{ account, msgID, openID string }

func (n *News) ref() ref    { return ref{n.Account, n.MsgID, n.OpenID} }
func (m *Message) ref() ref { return ref{m.Account, m.MsgID, m.OpenID} }

// row is a message while a batch works on it.
type row struct {
	now    Message
	was    Message // as it was read; its State is "" for a new row
	steps  map[string]Step
	letter []byte
	moves  []Message // behind each change of the state
}

func (r *row) fresh() bool   { return r.was.State == "" }
func (r *row) changed() bool { return r.now != r.was }

// work is one batch: pure bookkeeping between the reading and the writing of
// its transaction.
type work struct {
	at      int64 // our clock, for UpdatedAt and parked_at
	part    func(at int64, k wire.Kind) int64
	rows    map[string][]*row // by id, in the order of their variants
	parking map[ref][]News    // news without a row
	unpark  []parkedKey       // parked lines that found their row
	result  Applied
}

func (s *SQL) newWork() *work {
	return &work{at: s.now().UnixMilli(), part: s.part, rows: map[string][]*row{}, parking: map[ref][]News{}}
}

// loaded adds a row that was read and locked.
func (w *work) loaded(m *Message) {
	w.rows[m.ID] = append(w.rows[m.ID], &row{now: *m, was: *m, steps: map[string]Step{}})
}

// take joins news that has an id.
func (w *work) take(n News) {
	r := w.variant(n)
	before := r.now
	r.now.take(n)
	if r.fresh() {
		r.now.Part = w.part(r.now.At, r.now.Kind)
	}
	switch {
	case before.State == "":
		w.result.New++
	case r.now.State != before.State:
		w.result.Moved++
	default:
		w.result.Same++
	}
	if r.now.State != before.State {
		r.moves = append(r.moves, r.now)
	}
	if before.Contradiction == "" && r.now.Contradiction != "" {
		w.result.Contradictions++
	}
	if _, known := r.steps[n.digest()]; !known {
		r.steps[n.digest()] = n.step()
	}
	for i := range n.Before {
		r.steps[n.Before[i].digest()] = n.Before[i]
	}
	if len(r.letter) == 0 {
		r.letter = n.Letter
	}
}

// variant finds the row of an id that the news is about. News without a hash
// is about the first; a row without a hash takes the first hash that comes;
// another hash is another message.
func (w *work) variant(n News) *row {
	rows := w.rows[n.ID]
	for _, r := range rows {
		if n.IdentityHash == "" || r.now.IdentityHash == n.IdentityHash {
			return r
		}
	}
	for _, r := range rows {
		if r.now.IdentityHash == "" {
			return r
		}
	}
	r := &row{now: Message{ID: n.ID, Variant: len(rows)}, steps: map[string]Step{}}
	w.rows[n.ID] = append(rows, r)
	return r
}

// sorted gives the rows by id and variant: the one order in which every
// writer locks and inserts.
func (w *work) sorted() []*row {
	var out []*row
	for _, rows := range w.rows {
		out = append(out, rows...)
	}
	slices.SortFunc(out, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.now.ID, b.now.ID), cmp.Compare(a.now.Variant, b.now.Variant))
	})
	return out
}
