//go:build chaos

package chaos

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

// TestRobots shows what robots promise, end to end on Apache Kafka and Redis: a
// row for each bar. TIDEGATE_CHAOS=full has the numbers of the guarantees; one
// of them is run by naming it: -run TestRobots/G6.
func TestRobots(t *testing.T) {
	n := robotNumbersOf(t)
	e := startEngines(t)
	for _, s := range []struct {
		name string
		run  func(*testing.T, *engines, robotNumbers)
	}{
		{"G6", orderOfReplies},
		{"G12", backendCap},
		{"G17", recovery},
		{"G21", tenants},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, e, n) }) {
			e.mend(t)
		}
	}
}

type robotNumbers struct {
	users, each, kills, rebalances int // G6
	capped                         int // G12: messages
	times, backlog                 int // G17
	tenants                        int // G21: messages of the account that is well, in each phase
}

func robotNumbersOf(t *testing.T) robotNumbers {
	t.Helper()
	switch os.Getenv("TIDEGATE_CHAOS") {
	case "", "short":
		return robotNumbers{users: 60, each: 20, kills: 4, rebalances: 2, capped: 1200, times: 1, backlog: 1500, tenants: 400}
	}
	return robotNumbers{users: 500, each: 40, kills: 30, rebalances: 10, capped: 4000, times: 3, backlog: 6000, tenants: 2000}
}

// row prints one line of the table.
func row(t *testing.T, name, bar, format string, args ...any) {
	t.Helper()
	ci(t, "%-4s | bar: %-60s | measured: %s | kept", name, bar, fmt.Sprintf(format, args...))
}

// orderOfReplies (G6): users who wait for each ack see their answers in the order
// of the acks, whatever dies behind the door.
func orderOfReplies(t *testing.T, e *engines, n robotNumbers) {
	sim := newSim(t, n.users)
	r := newRoad(newWorld(t, e, shape{doors: 2, extra: apis(sim, shortSessions), routing: drive.Pinned}), sim)
	for range 2 {
		r.robot()
	}
	acked, killed := make(chan int64, 1), make(chan struct{})
	go func() {
		acked <- r.drive.Closed(t.Context(), drive.Users{
			Count: n.users, Each: n.each, Until: killed, Pause: r.patience(time.Duration(n.users) * time.Second / 250),
			Act: func(user, _, i int) drive.Act { return r.act(user, i) },
		})
	}()
	k, rebalances := r.disturb(n)
	close(killed)
	require.GreaterOrEqual(t, <-acked, int64(n.users*n.each))
	v := r.judged()
	row(t, "G6", fmt.Sprintf("%d users x %d, %d kills, %d rebalances: inversions 0", n.users, n.each, n.kills, n.rebalances),
		"%s, %d rebalances by robots that come and go: acked %d, answered %d, inversions %d, lost %d, doubled %d", k, rebalances, v.acked, v.Replies, v.inversions, v.lost, v.Found["duplicate"])
}

// disturb kills robots, Redis and the broker, and lets a robot come and go, while
// messages are on their way.
func (r *road) disturb(n robotNumbers) (k string, rebalances int) {
	r.t.Helper()
	robots, caches, brokers := 0, 0, 0
	total := int64(n.users * n.each)
	for i := range n.kills + n.rebalances/2 {
		at := total * int64(i+1) / int64(n.kills+n.rebalances/2+2)
		herd.Wait(r.t, fmt.Sprintf("%d of %d acks", at, total), r.patience(5*time.Minute), func() bool { return r.drive.Acked() >= at })
		r.waitForWork()
		switch {
		case i%(n.kills/max(1, n.rebalances/2)+1) == 1 && rebalances < n.rebalances:
			guest := r.robot() // joins, and leaves in order
			r.goOn(50)
			guest.Stop()
			rebalances += 2
		case i%8 == 3:
			caches++
			r.e.redis.Kill()
			r.goOn(20)
			r.reviveRedis()
		case i%8 == 7:
			brokers++
			r.broker.Kill()
			r.goOn(20)
			r.broker.Restart()
		default:
			robots++
			p := r.robots[r.dice.IntN(2)]
			p.Kill()
			r.goOn(20)
			p.Restart()
		}
	}
	require.Positive(r.t, robots)
	return fmt.Sprintf("%d kill -9 (%d robots, %d Redis, %d Kafka)", robots+caches+brokers, robots, caches, brokers), rebalances
}
