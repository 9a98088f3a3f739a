// Package control is how operators steer a running deployment: settings as
// versioned rows in SQL, at work on every node within two seconds, and a record
// of who changed what, when and why (decisions.md D9).
//
//	operator ─▶ Store.Apply ─▶ one transaction: row + audit entry + new version
//	                 │
//	                 ├─ announcement over Redis ─▶ ┐
//	                 └─ (lost? no matter)           ├─▶ View of each node ─▶ Knobs ─▶ limiters
//	                    poll of the version, 500 ms ┘         ├─▶ Orders: pauses and cancels
//	                                                          └─▶ "I apply version 12" in Redis
//
// Idea: the row is the truth and the announcement only a hint, so nothing has
// to arrive for a change to be at work; a node that was away reads the rows and
// is up to date. A row is generic – kind, subject, value – so that pauses and
// cancels can join limits without another table.
//
// Invariants: versions grow by one with every change and are the numbers of the
// audit entries; a change and its entry are one transaction; every entry holds
// the hash of the one before, so that an entry that was edited, taken out or
// put in is found (Verify), as is a row that no entry explains. A limit that is
// lowered holds at once, one that is raised is reached in a straight line over
// the slow start. Without a row the value of the configuration file holds.
//
// On failure: while the database is away the last known settings stay and Age
// grows; whoever must not act on old settings asks for it. While Redis is away
// changes are found by the poll, and nobody can say which nodes apply what. A
// value that this release does not understand changes nothing and is shown. After
// a backup of the database was put back, nodes that hold a newer version keep it:
// changes are refused and say which processes to restart.
//
// The chain shows tampering to whoever knows its last hash. A person who may
// write to the tables could compute all hashes anew: each change is therefore
// also a log line with version and hash, which lie where the logs go.
package control
