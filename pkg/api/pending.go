package api

import (
	"context"

	"tidegate/pkg/sqldb"
)

// Pending tells how many migrations Migrate would apply. It changes nothing.
func Pending(ctx context.Context, db *sqldb.DB) (int, error) {
	fsys, err := migrationFiles()
	if err != nil {
		return 0, err
	}
	return db.Pending(ctx, "api", fsys)
}
