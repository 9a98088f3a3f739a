// Package chaos breaks Tidegate while WeChat talks to it, and looks afterwards
// whether every promise was kept. Processes, engines and brokers are real and
// are killed, frozen and stopped by pid; what was sent and what was answered is
// in a history; what was lost, doubled, disordered or invented is computed from
// that history and never from our metrics.
//
// The runs carry the build tag chaos. TIDEGATE_CHAOS=short (default) is what CI
// runs, full has the numbers of the guarantees, soak is for a release:
//
//	go test -tags chaos -run TestChaos/Order ./test/chaos
//
// TestRobots is what stands behind the door, to the answer that a user sees, and
// TestSenders what stands behind the queue: they have lines of their own in
// deployments/dev/prove.list. The latter use the PostgreSQL that
// TIDEGATE_TEST_POSTGRES names, which nobody kills, and in their short form SQLite
// if there is none.
package chaos
