package store

import (
	"context"

	"tidegate/pkg/sqldb"
)

// Change is what one transaction does to a message.
type Change struct {
	Now    Message   // as the row is written
	Moves  []Message // as it was right behind each change of its state, in order
	Letter []byte    // of a push, if this transaction is the first to bring it; else nil
}

// Hook is told of every change within the transaction that makes it, so that
// what the hook writes is there exactly when the change is. An error undoes
// both. It may be called again for a change whose transaction failed.
type Hook func(ctx context.Context, tx *sqldb.Tx, changes []Change) error

// OnChange sets the hook; call it before the first Apply.
func (s *SQL) OnChange(h Hook) { s.hook = h }

// tell gives the hook what this batch changed, in the order of the rows.
func (s *SQL) tell(ctx context.Context, tx *sqldb.Tx, w *work) error {
	if s.hook == nil {
		return nil
	}
	var changes []Change
	for _, r := range w.sorted() {
		if len(r.moves) > 0 || len(r.letter) > 0 {
			changes = append(changes, Change{Now: r.now, Moves: r.moves, Letter: r.letter})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return s.hook(ctx, tx, changes)
}
