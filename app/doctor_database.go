package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/schedule"
	"tidegate/pkg/sqldb"
	"tidegate/receipts/store"
	"tidegate/receipts/webhook"
	"tidegate/sender/hold"
	"tidegate/sender/intake"
	"tidegate/sender/intent"
)

// oldestPostgres is the oldest release that the rooms' SQL is for (D15).
const oldestPostgres = 14

// checkDatabase opens the database, asks for its version and counts the
// migrations that a start would apply. It applies none.
func (d *doctor) checkDatabase(ctx context.Context) []finding {
	c := d.cfg.Database
	var out []finding
	if c.Driver != sqldb.Postgres {
		out = append(out, warn("use database.driver postgres in production", "database is SQLite: good for one machine, and sender and receipts must share the file"))
		missing, found := lookForFile(strings.TrimPrefix(c.DSN, "file:"))
		out = append(out, found)
		if missing { // opening would make it, as whoever runs the doctor
			return out
		}
	}
	c.Timeout = doctorTimeout
	db, err := sqldb.Open(ctx, c)
	if err != nil {
		return append(out, databaseAway(err))
	}
	defer db.Close()
	version, err := db.Version(ctx)
	if err != nil {
		return append(out, databaseAway(err))
	}
	if old(version) {
		return append(out, fail(fmt.Sprintf("upgrade to PostgreSQL %d or later", oldestPostgres), "database %s is %s, which is too old", db.Target(), version))
	}
	out = append(out, ok("database %s: %s", db.Target(), version))
	return append(out, d.checkMigrations(ctx, db)...)
}

// lookForFile tells whether SQLite's file has still to be made, and whether it
// could be.
func lookForFile(path string) (missing bool, f finding) {
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return true, fail("give the path of a file in database.dsn", "database %s is a directory", path)
	case err == nil:
		return false, ok("database file %s", path)
	case !errors.Is(err, fs.ErrNotExist):
		return true, fail("let the user of the role read and write it", "database file: %v", err)
	}
	dir := filepath.Dir(path)
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return true, fail("correct database.dsn", "database file %s: %s is not a directory", path, dir)
	}
	return true, ok("database file %s is not there yet; the first start makes it and its tables", path)
}

func databaseAway(err error) finding {
	if fault.KindOf(err) == fault.Denied {
		return fail("correct user, password and database name in database.dsn, or have them created; see pg_hba.conf of the server", "database: %v", err)
	}
	return fail("start it, or correct host, port and sslmode in database.dsn", "database does not answer: %v", err)
}

// old reads "PostgreSQL 13.4 …"; what it does not understand is not old.
func old(version string) bool {
	var major int
	if _, err := fmt.Sscanf(version, "PostgreSQL %d", &major); err != nil {
		return false
	}
	return major < oldestPostgres
}

// checkMigrations counts what the next start of the roles would do, and
// whether it may.
func (d *doctor) checkMigrations(ctx context.Context, db *sqldb.DB) []finding {
	var ask []func(context.Context, *sqldb.DB) (int, error)
	if d.needs(RoleSender, RoleReceipts) {
		ask = append(ask, api.Pending)
	}
	if d.needs(RoleSender, RoleRobot, RoleReceipts) {
		ask = append(ask, control.Pending)
	}
	if d.needs(RoleSender) {
		ask = append(ask, intent.Pending, intake.Pending, hold.Pending)
	}
	if d.needs(RoleReceipts) {
		ask = append(ask, store.Pending, webhook.Pending)
	}
	if d.hasJobs() {
		ask = append(ask, schedule.Pending)
	}
	total := 0
	for _, pending := range ask {
		n, err := pending(ctx, db)
		if err != nil {
			return []finding{fail("let the user read the tables tidegate_schema_*", "database: %v", err)}
		}
		total += n
	}
	if total == 0 {
		return []finding{ok("database tables are up to date")}
	}
	if may, err := mayCreate(ctx, db); err != nil || !may {
		return []finding{fail("GRANT CREATE ON SCHEMA (for instance public) to the user of database.dsn, or start the role once as the schema's owner",
			"database: %d migrations are pending and the user may not create tables", total)}
	}
	return []finding{ok("database: %d migrations are pending; the next start of a role applies them", total)}
}

// mayCreate: since PostgreSQL 15 an ordinary user may not, in public.
func mayCreate(ctx context.Context, db *sqldb.DB) (may bool, err error) {
	if db.Dialect() != sqldb.Postgres {
		return true, nil
	}
	err = db.QueryRow(ctx, "SELECT COALESCE(has_schema_privilege(current_schema(), 'CREATE'), false)").Scan(&may)
	return may, err
}
