package hold

import (
	"context"
	"fmt"
	"io/fs"

	"tidegate/pkg/sqldb"
)

// Pending tells how many migrations of this package's tables are still to be
// applied. It changes nothing.
func Pending(ctx context.Context, db *sqldb.DB) (int, error) {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, fmt.Errorf("open migrations of hold: %w", err)
	}
	return db.Pending(ctx, "hold", sub)
}
