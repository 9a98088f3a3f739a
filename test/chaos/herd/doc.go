//go:build linux

// Package herd starts the processes of a fault run and does to them what
// happens in production: SIGTERM, SIGKILL, SIGSTOP, SIGCONT, always by the pid
// that it started itself, and always with a line in the run's history.
//
// Invariants. A process is signalled as a group of its own, so that a wrapper
// (a shell, strace) and what it runs end together. Nothing is left behind: a
// test's end stops what still runs, last started first, and the kernel ends the
// children if the test itself is killed.
//
// Failure. A process that ends while it should become ready, or does not stop
// when it is asked, fails the test with the end of its log. Waiting is always
// for a condition, with a deadline, never for time to pass.
package herd
