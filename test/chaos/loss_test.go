//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/check"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

// loss kills doors, Redis and the broker at random under an open load: what was
// acknowledged is in the callbacks log (G1).
func loss(t *testing.T, e *engines, n numbers) {
	w := newWorld(t, e, shape{doors: 3, broker: e.brokerOf(n)})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sum := make(chan drive.Sum, 1)
	rate := w.rate(n.loss.rate)
	go func() {
		sum <- w.drive.Open(ctx, drive.Load{Rate: rate, Act: w.crowd(2000), Dice: w.dice})
	}()
	k := w.kills(n.loss.kills, int64(n.loss.acts), w.drive.Acked)
	herd.Wait(t, "the rest of the callbacks", w.patience(5*time.Minute), func() bool { return w.drive.Acked() >= int64(n.loss.acts) })
	stop()
	s := <-sum
	require.Zero(t, s.Skipped, "the driver could not keep its plan")
	v := w.judge(w.killing())
	// A user moves when his door dies; what that one had in its spool comes later
	// (D12). What one door has acknowledged it hands on in order all the same.
	require.Zero(t, v.sameDoor, "inversions of callbacks that one door took")
	delete(v.Found, "inversion")
	v.demand(t)
	ci(t, "G1 %s: %d callbacks at %.0f/s, %s: acked %d, lost %d; in the log twice or more %d, invented %d; given up by WeChat %d; inversions by one door %d, over doors %d (users move from a door that dies)",
		w.brokerName(), s.Offered, rate, k, v.acked, v.lost, v.repeated, v.invented, s.GivenUp, v.sameDoor, v.inversions)
}

// brokerOf is Apache Kafka, except in the short runs, which could not wait for
// a JVM to come back so often.
func (e *engines) brokerOf(n numbers) *herd.Engine {
	if n.real {
		return e.kafka
	}
	return e.node
}

func (w *world) brokerName() string {
	if w.broker.Real {
		return "Apache Kafka"
	}
	return "embedded broker"
}

// killed counts what was killed and what was in flight then.
type killed struct {
	doors, redis, broker int
	inFlight             int64
}

func (k killed) String() string {
	return fmt.Sprintf("%d kill -9 (%d doors, %d Redis, %d brokers; %d deliveries in flight at them)", k.doors+k.redis+k.broker, k.doors, k.redis, k.broker, k.inFlight)
}

// What a kill may hit. Some kills of the broker are followed by one of a
// door while the broker is still away, so that a spool outlives its process.
type victim int

const (
	aDoor victim = iota
	theRedis
	theBroker
	brokerAndDoor
)

// deck is a shuffled choice of n victims in fixed shares. Apache Kafka takes
// seconds to come back, so it has a smaller one.
func (w *world) deck(n int) []victim {
	share := []victim{theBroker, aDoor, theRedis, aDoor, brokerAndDoor, aDoor, theRedis, theBroker, aDoor, theRedis}
	if w.broker.Real {
		share = []victim{theBroker, aDoor, theRedis, aDoor, theRedis, aDoor, theRedis, aDoor, brokerAndDoor, aDoor, theRedis, aDoor}
	}
	out := make([]victim, n)
	for i := range out {
		out[i] = share[i%len(share)]
	}
	w.dice.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// kills spreads n kills over a progress that ends at total.
func (w *world) kills(n int, total int64, progress func() int64) (k killed) {
	w.t.Helper()
	for i, v := range w.deck(n) {
		at := total * int64(i+1) / int64(n+2)
		herd.Wait(w.t, fmt.Sprintf("%d of %d", at, total), w.patience(5*time.Minute), func() bool { return progress() >= at })
		k.inFlight += w.waitForWork()
		door := w.doors[w.dice.IntN(len(w.doors))]
		switch v {
		case aDoor:
			k.doors++
			door.Kill()
			w.goOn(20)
			door.Restart()
		case theRedis:
			k.redis++
			w.e.redis.Kill()
			w.goOn(20)
			w.reviveRedis()
		case theBroker:
			k.broker++
			w.broker.Kill()
			w.goOn(50)
			w.broker.Restart()
		case brokerAndDoor:
			k.broker++
			w.broker.Kill()
			w.goOn(50)
			k.doors++
			door.Kill()
			door.Restart()
			w.broker.Restart()
		}
	}
	require.Positive(w.t, k.inFlight)
	require.Positive(w.t, min(k.doors, k.redis, k.broker), "%s: each must have been killed", k)
	return k
}

// reviveRedis brings it back with what it knew, or empty.
func (w *world) reviveRedis() {
	w.t.Helper()
	if w.dice.IntN(2) == 0 {
		w.e.emptyRedis()
		return
	}
	w.e.redis.Restart()
}

// goOn waits until others were served meanwhile; if nobody is left to be, a
// second is enough.
func (w *world) goOn(n int64) {
	w.t.Helper()
	want, until := w.drive.Delivered()+n, time.Now().Add(w.patience(time.Second))
	herd.Wait(w.t, "service to go on", w.patience(30*time.Second), func() bool { return w.drive.Delivered() >= want || time.Now().After(until) })
}

// busy is what a run allows that does not measure answers: the driver itself may
// be late, and a record that the queue took too slowly is in the log twice.
func (w *world) busy() check.Options {
	return check.Options{Doubles: true, AckLimit: 15 * time.Second, SettleLimit: w.patience(time.Minute)}
}

// killing is what a run with kills allows as well: a delivery to a process that
// dies has no answer.
func (w *world) killing() check.Options {
	o := w.busy()
	o.Silence = true
	return o
}
