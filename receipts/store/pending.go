package store

import (
	"context"
	"io/fs"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// Pending tells how many migrations of the receipts' tables are still to be
// applied. It changes nothing.
func Pending(ctx context.Context, db *sqldb.DB) (int, error) {
	fsys, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, fault.Wrap(fault.Internal, "open migrations of receipts", err)
	}
	return db.Pending(ctx, "receipts", fsys)
}
