//go:build chaos

package chaos

import (
	"testing"
	"time"
)

// TestChaos runs the scenarios one after another on the same engines: Apache
// Kafka, Redis, and the embedded broker as a process of its own. One of them is
// run by naming it: -run TestChaos/Order.
func TestChaos(t *testing.T) {
	n := numbersOf(t)
	e := startEngines(t)
	for _, s := range []struct {
		name string
		run  func(*testing.T, *engines, numbers)
	}{
		{"Ack", ack},
		{"Crashes", crashes},
		{"RobotDies", robotDies},
		{"RobotOrder", func(t *testing.T, e *engines, _ numbers) { orderOfReplies(t, e, robotNumbersOf(t)) }},
		{"Senders", func(t *testing.T, e *engines, _ numbers) { sendersShort(t, e) }},
		{"Loss", loss},
		{"Order", order},
		{"Breaks", breaks},
		{"Twins", twins},
		{"Repeats", repeats},
		{"FsyncFirst", fsyncFirst},
		{"DiskFull", diskFull},
		{"Drain", drain},
		{"Rolling", rolling},
		{"BothBrokers", bothBrokers},
	} {
		if n.skip[s.name] {
			continue
		}
		began := time.Now()
		if !t.Run(s.name, func(t *testing.T) { s.run(t, e, n) }) {
			e.mend(t)
		}
		if took := time.Since(began); took > 100*time.Millisecond { // what -run leaves out takes no time
			t.Logf("%s took %.1f s", s.name, took.Seconds())
		}
	}
}
