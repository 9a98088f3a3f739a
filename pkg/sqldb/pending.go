package sqldb

import (
	"context"
	"io/fs"
	"regexp"
	"strconv"

	"tidegate/pkg/fault"
)

var migrationFile = regexp.MustCompile(`^(\d{1,18})_.*\.sql$`)

// Pending tells how many of a room's migrations Migrate would still apply. It
// changes nothing, also where no table was ever made.
func (db *DB) Pending(ctx context.Context, room string, fsys fs.FS) (int, error) {
	op := "look for pending migrations of " + room
	if !roomName.MatchString(room) {
		return 0, fault.New(fault.Internal, op, "room name %q: use a-z and _", room)
	}
	files, err := fs.ReadDir(fsys, db.driver)
	if err != nil {
		return 0, fault.New(fault.Internal, op, "folder %s: %w", db.driver, err)
	}
	applied, err := db.applied(ctx, versionTable+room)
	if err != nil {
		return 0, wrap(op, err, false)
	}
	pending := 0
	for _, f := range files {
		m := migrationFile.FindStringSubmatch(f.Name())
		if m == nil {
			continue
		}
		version, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return 0, fault.New(fault.Internal, op, "file %s: %w", f.Name(), err)
		}
		if !applied[version] {
			pending++
		}
	}
	return pending, nil
}

// applied reads the versions in a version table; without the table there are
// none.
func (db *DB) applied(ctx context.Context, table string) (map[int64]bool, error) {
	ctx, cancel := db.bound(ctx)
	defer cancel()
	exists := "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = $1"
	if db.driver == Postgres {
		exists = "SELECT COUNT(*) FROM pg_catalog.pg_class WHERE oid = to_regclass($1)"
	}
	var n int
	if err := db.QueryRow(ctx, exists, table).Scan(&n); err != nil || n == 0 {
		return nil, err
	}
	rows, err := db.Query(ctx, "SELECT version_id, is_applied FROM "+table+" ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[int64]bool{}
	for rows.Next() {
		var version int64
		var is bool
		if err := rows.Scan(&version, &is); err != nil {
			return nil, err
		}
		out[version] = is
	}
	return out, rows.Err()
}
