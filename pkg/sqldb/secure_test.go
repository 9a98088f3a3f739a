package sqldb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/sqldb"
)

// S82: a server on another machine wants encryption, a certificate that is
// checked, and a password. The password is never part of the error.
func TestS82PlainDatabaseElsewhereIsRefused(t *testing.T) {
	const plain, unchecked, open = "without encryption", "is not checked", "without a password"
	for dsn, want := range map[string]string{
		"postgres://u:s3cret@db.internal/x?sslmode=disable":           plain,
		"postgres://u:s3cret@db.internal/x?sslmode=allow":             plain,
		"postgres://u:s3cret@db.internal/x?sslmode=prefer":            plain,
		"postgres://u:s3cret@db.internal/x":                           plain,
		"postgres://u:s3cret@db.internal/x?sslmode=require":           unchecked,
		"postgres://u@db.internal/x?sslmode=verify-full":              open,
		"postgres://u:s3cret@127.0.0.1,db.internal/x?sslmode=disable": plain,
		"postgres://u:s3cret@db.internal/x?sslmode=verify-full":       "",
		"postgres://u:s3cret@db.internal/x?sslmode=verify-ca":         "",
		"postgres://u@127.0.0.1/x?sslmode=disable":                    "",
		"postgres://u@localhost/x?sslmode=disable":                    "",
		"host=/var/run/postgresql user=u dbname=x":                    "",
	} {
		t.Run(dsn, func(t *testing.T) {
			t.Setenv("PGPASSFILE", t.TempDir()+"/none")
			c := sqldb.Config{Driver: sqldb.Postgres, DSN: dsn}
			err := c.Validate()
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "database.allow_insecure")
			require.NotContains(t, err.Error(), "s3cret")
			require.Equal(t, fault.Invalid, fault.KindOf(err))
			c.AllowInsecure = true
			require.NoError(t, c.Validate())
		})
	}
}
