// Package sqldb opens the SQL database of a deployment: PostgreSQL on real
// sites, SQLite where one process is the whole site. It is the only importer
// of SQL drivers; every room writes its SQL once, with $1, $2, … as
// placeholders and nothing but what both engines understand.
//
//	PostgreSQL  one pool
//	SQLite      one writer connection + a pool of readers (WAL), so that a
//	            report never makes a receipt wait and two writers never meet
//
// Invariants: whatever Tx committed is on disk (SQLite: synchronous=FULL
// unless the configuration says otherwise); a function that fails or panics
// inside Tx leaves nothing behind; errors carry a fault.Kind, so that callers
// decide about retries without reading texts or driver types:
//
//	unique key violated                          fault.Conflict
//	no row                                       fault.NotFound
//	database away, busy, out of time, rolled back fault.Unavailable: nothing was done
//	connection lost during a commit or a write    fault.Ambiguous: it may have been done
//	a value the engine cannot store               fault.Invalid
//	wrong password, missing right                 fault.Denied
//	anything else                                 fault.Internal: our bug
//
// MySQL is not supported (decisions.md D15).
package sqldb
