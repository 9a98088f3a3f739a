package sqldb

import (
	"fmt"
	"time"

	"tidegate/pkg/fault"
)

// The drivers that Config.Driver may name.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// Config says which database to open. The DSN is a secret because it usually
// holds a password; it is never logged and never part of an error.
type Config struct {
	// Driver is "sqlite" or "postgres".
	Driver string `koanf:"driver"`
	// DSN is, for PostgreSQL, a URL such as
	// postgres://user:password@host:5432/tidegate?sslmode=verify-full&sslrootcert=/etc/ca.pem
	// (TLS, several hosts and target_session_attrs are set there); for SQLite
	// the path of the database file.
	DSN string `koanf:"dsn" secret:"true"`
	// AllowInsecure permits a server on another machine without encryption,
	// without proof that it is the right one, or without a password.
	AllowInsecure bool `koanf:"allow_insecure"`
	// MaxConns bounds the pool (SQLite: the readers; there is always exactly
	// one writer).
	MaxConns int `koanf:"max_conns"`
	// Timeout bounds connecting, waiting for SQLite's write lock, and each
	// Exec and transaction whose context has no earlier deadline.
	Timeout time.Duration `koanf:"timeout"`
	// Synchronous is SQLite's setting: "full" keeps every commit through a
	// power cut, "normal" through a killed process only, and is faster.
	Synchronous string `koanf:"synchronous"`
}

// DefaultConfig is a SQLite database that survives power cuts. The DSN has no
// default: where data lies is for the operator to say.
func DefaultConfig() Config {
	return Config{Driver: SQLite, MaxConns: 8, Timeout: 10 * time.Second, Synchronous: "full"}
}

// withDefaults fills what was left at zero.
func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if c.Driver == "" {
		c.Driver = d.Driver
	}
	if c.MaxConns == 0 {
		c.MaxConns = d.MaxConns
	}
	if c.Timeout == 0 {
		c.Timeout = d.Timeout
	}
	if c.Synchronous == "" {
		c.Synchronous = d.Synchronous
	}
	return c
}

// Validate checks the values without connecting. Zero values stand for the
// defaults and are valid, except for the DSN.
func (c Config) Validate() error {
	const op = "check database settings"
	c = c.withDefaults()
	switch {
	case c.Driver != SQLite && c.Driver != Postgres:
		return fault.New(fault.Invalid, op, "driver is %q: use %q or %q (MySQL is not supported)", c.Driver, SQLite, Postgres).WithField("driver")
	case c.DSN == "":
		return fault.New(fault.Invalid, op, "dsn is empty: give a file path for sqlite, or postgres://user:password@host:5432/name for postgres").WithField("dsn")
	case c.MaxConns < 1 || c.MaxConns > 1000:
		return fault.New(fault.Invalid, op, "max_conns is %d: use 1 to 1000", c.MaxConns).WithField("max_conns")
	case c.Timeout < 100*time.Millisecond || c.Timeout > 10*time.Minute:
		return fault.New(fault.Invalid, op, "timeout is %s: use 100ms to 10m", c.Timeout).WithField("timeout")
	case c.Synchronous != "full" && c.Synchronous != "normal":
		return fault.New(fault.Invalid, op, "synchronous is %q: use \"full\" or \"normal\"", c.Synchronous).WithField("synchronous")
	}
	if c.Driver == Postgres {
		pc, err := postgresConfig(c)
		if err != nil || c.AllowInsecure {
			return err
		}
		return secure(pc)
	}
	_, err := sqlitePath(c.DSN)
	return err
}

// String describes the configuration without the DSN.
func (c Config) String() string {
	return fmt.Sprintf("%s (max_conns %d, timeout %s)", c.Driver, c.MaxConns, c.Timeout)
}

// GoString keeps the DSN out of %#v as well.
func (c Config) GoString() string { return c.String() }
