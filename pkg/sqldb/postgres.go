package sqldb

import (
	"database/sql"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"tidegate/pkg/fault"
)

// postgresConfig reads the DSN. The text of pgx's error is not passed on:
// its cause may hold the whole connection string.
func postgresConfig(c Config) (*pgx.ConnConfig, error) {
	pc, err := pgx.ParseConfig(c.DSN)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read database dsn",
			"not a PostgreSQL connection string%s: use postgres://user:password@host:5432/name?sslmode=verify-full", safeDetail(err)).WithField("dsn")
	}
	if pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = c.Timeout
	}
	if pc.RuntimeParams["application_name"] == "" {
		pc.RuntimeParams["application_name"] = "tidegate"
	}
	return pc, nil
}

// safeDetail names the part of the DSN that pgx refused, from a fixed list of
// words, since everything else in its message may come from the secret.
func safeDetail(err error) string {
	var pe *pgconn.ParseConfigError
	if !errors.As(err, &pe) {
		return ""
	}
	msg := strings.ReplaceAll(pe.Error(), pe.ConnString, "")
	for _, word := range []string{"sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs", "connect_timeout", "port", "service"} {
		if strings.Contains(msg, word) {
			return " (look at " + word + ")"
		}
	}
	return ""
}

// openPostgres makes the pool; nothing is dialled yet. Connections are renewed
// every half hour, so that a fail-over behind a name is followed.
func openPostgres(c Config) (*DB, error) {
	pc, err := postgresConfig(c)
	if err != nil {
		return nil, err
	}
	pool := stdlib.OpenDB(*pc)
	limitPool(pool, c.MaxConns)
	target := "postgres://" + pc.User + "@" + net.JoinHostPort(pc.Host, strconv.Itoa(int(pc.Port))) + "/" + pc.Database
	return &DB{driver: Postgres, target: target, timeout: c.Timeout, writer: pool, reader: pool}, nil
}

// classifyPostgres maps SQLSTATE to a kind; ok is false where the error does
// not come from the server. A server that goes down while it commits may have
// committed.
func classifyPostgres(err error, commits bool) (fault.Kind, bool) {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || len(pe.Code) != 5 {
		var ce *pgconn.ConnectError
		if errors.As(err, &ce) || pgconn.SafeToRetry(err) {
			return fault.Unavailable, true
		}
		return fault.Internal, false
	}
	switch pe.Code {
	case "23505": // unique_violation
		return fault.Conflict, true
	case "40001", "40P01", "55P03", "57014", "25006": // serialization, deadlock, lock, cancelled, standby
		return fault.Unavailable, true
	case "57P01", "57P02", "57P05": // the server, or this connection, is being shut down
		if commits {
			return fault.Ambiguous, true
		}
		return fault.Unavailable, true
	case "42501": // insufficient_privilege
		return fault.Denied, true
	}
	switch pe.Code[:2] {
	case "08", "53", "57", "58": // connection, resources, operator, system
		return fault.Unavailable, true
	case "28", "3D": // authorization, no such database
		return fault.Denied, true
	case "22": // a value that the column cannot hold, for instance NUL in text
		return fault.Invalid, true
	}
	return fault.Internal, true
}

func limitPool(p *sql.DB, n int) {
	p.SetMaxOpenConns(n)
	p.SetMaxIdleConns(n)
	p.SetConnMaxIdleTime(connIdle)
	p.SetConnMaxLifetime(connLife)
}
