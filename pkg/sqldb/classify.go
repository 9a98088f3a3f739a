package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"tidegate/pkg/fault"
)

// wrap gives a driver's error its kind. commits is true where the statement
// takes effect by itself (a commit, or a write outside a transaction): only
// there does a lost connection leave the outcome open.
func wrap(op string, err error, commits bool) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	return fault.Wrap(kindOf(err, commits), op, err)
}

func kindOf(err error, commits bool) fault.Kind {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.NotFound
	}
	if k, ok := classifyPostgres(err, commits); ok {
		return k
	}
	if k, ok := classifySQLite(err); ok {
		return k
	}
	var ne net.Error
	switch {
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone):
		return fault.Unavailable // database/sql uses these before anything was sent
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, pgconn.ErrConnClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &ne):
		if commits {
			return fault.Ambiguous
		}
		return fault.Unavailable
	}
	return fault.Internal
}
