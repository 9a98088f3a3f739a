//go:build chaos

package chaos

import (
	"os"
	"testing"
	"time"
)

// numbers is how much a run does. Invariants do not depend on it.
type numbers struct {
	real bool            // the kills of loss, order and repeats hit Apache Kafka
	skip map[string]bool // what the short form has no time for
	loss struct {        // G1
		acts, kills int
		rate        float64
	}
	ack struct { // G2 and the phases: acts in each fault
		acts                 int
		rate                 float64
		kafkaDown, kafkaHung time.Duration // at least
	}
	fsync   struct{ acks int } // G3
	repeats struct {           // G4
		acts, times int
		apart       time.Duration // at most, between first and last delivery
	}
	twins struct{ pairs int } // G5
	order struct {            // G6
		users, each, kills int
	}
	full struct { // G16: disk full
		disk int64 // bytes of the tmpfs
		body int   // bytes of a message
	}
	rolling struct { // G18
		rounds int
		rate   float64
	}
	drain struct{ acts int }
	alike struct{ acts, kills int } // both brokers
}

func numbersOf(t *testing.T) numbers {
	t.Helper()
	var n numbers
	n.loss.acts, n.loss.kills, n.loss.rate = 3000, 10, 600
	n.ack.acts, n.ack.rate, n.ack.kafkaDown, n.ack.kafkaHung = 1000, 1000, time.Second, time.Second
	n.fsync.acks = 60
	n.repeats.acts, n.repeats.times, n.repeats.apart = 200, 4, 3*time.Second
	n.twins.pairs = 100
	n.order.users, n.order.each, n.order.kills = 60, 20, 6
	n.full.disk, n.full.body = 8<<20, 4000
	n.rolling.rounds, n.rolling.rate = 1, 300
	n.drain.acts = 300
	n.alike.acts, n.alike.kills = 600, 1
	// Both wait seconds for clocks or for a JVM, and CI sees Apache Kafka die in Ack;
	// senders die in its end-to-end run, and at each point in `make prove`.
	n.skip = map[string]bool{"Breaks": true, "BothBrokers": true, "Senders": true}
	size := os.Getenv("TIDEGATE_CHAOS")
	switch size {
	case "", "short":
		return n
	case "full", "soak":
	default:
		t.Fatalf("TIDEGATE_CHAOS=%s: use short, full or soak", size)
	}
	n.real, n.skip = true, map[string]bool{"RobotOrder": true, "Senders": true} // TestRobots and TestSenders have them at their numbers
	n.loss.acts, n.loss.kills, n.loss.rate = 20_000, 30, 500
	n.ack.acts, n.ack.kafkaDown, n.ack.kafkaHung = 5000, 60*time.Second, 20*time.Second
	n.fsync.acks = 200
	n.repeats.acts, n.repeats.apart = 2000, 15*time.Second
	n.twins.pairs = 1000
	n.order.users, n.order.each, n.order.kills = 500, 40, 30
	n.full.disk, n.full.body = 64<<20, 12_000
	n.rolling.rounds, n.rolling.rate = 2, 500
	n.drain.acts = 3000
	n.alike.acts, n.alike.kills = 2000, 1
	if size == "full" {
		return n
	}
	n.loss.acts, n.loss.kills = 200_000, 200
	n.ack.acts, n.ack.kafkaDown = 60_000, 5*time.Minute
	n.repeats.acts, n.twins.pairs = 20_000, 10_000
	n.order.users, n.order.each, n.order.kills = 1000, 100, 200
	n.rolling.rounds = 20
	return n
}
