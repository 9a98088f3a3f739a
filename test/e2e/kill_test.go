//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/test/chaos/herd"
)

// inFlightPerSender is the concurrency of replies in the configuration.
const inFlightPerSender = 64

// killsOf is how often each role is killed: five times, or as often as
// TIDEGATE_TEST_KILLS says.
func killsOf(t *testing.T) int {
	t.Helper()
	text := os.Getenv("TIDEGATE_TEST_KILLS")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "TIDEGATE_TEST_KILLS")
	return n
}

// TestKills kills the proxy, the robot and the sender with −9 under 200
// callbacks/s and 20 pushes/s on 8 partitions with two robots. Nothing is
// lost, no push is doubled, and a doubled reply is flagged in its row.
func TestKills(t *testing.T) {
	kills := killsOf(t)
	w := newWorld(t, shape{partitions: 8, proxies: 2, robots: 2, senders: 2, receiptsWorkers: 1, followers: 400})
	b := w.business()
	sums := w.watchSums(2, true)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pushed, talked := make(chan error, 1), make(chan error, 1)
	go func() { pushed <- b.offer(ctx, 2, 100_000, 20) }()
	go func() {
		_, err := w.sim.Load(ctx, wechatsim.LoadSpec{
			Rate: 200, For: time.Hour, Loop: wechatsim.LoopClosed, Mix: wechatsim.Mix{Text: 9, Menu: 1}, LoseAckShare: 0.01, MenuKey: "BILL:",
		})
		talked <- err
	}()
	full := int64(0)
	if 3*kills >= 30 {
		full = 21_000 // G1 is about 20,000 callbacks and 30 kills
	}
	var rebalances float64
	for round := range kills {
		for _, role := range []string{"proxy", "robot", "sender"} {
			rebalances += w.killUnderLoad(fmt.Sprintf("%s%d", role, round%2), max(200, full/int64(6*kills)))
		}
	}
	rebalances += w.rebalances()
	stop()
	require.ErrorIs(t, <-talked, context.Canceled)
	require.NoError(t, <-pushed)
	v := w.settle(90 * time.Second)
	require.True(t, v.Complete)
	require.Zero(t, v.Replies.Lost+v.Replies.Pending, "lost: %+v", few(v))
	require.Zero(t, v.Replies.OutOfOrder, "disordered: %+v", few(v))
	require.Zero(t, v.Replies.Unexpected, "unexpected: %+v", few(v))
	requirePushesRight(t, v)
	flagged, users := w.flagged()
	require.LessOrEqual(t, v.Replies.Doubled, flagged, "every doubled reply must be flagged in its row")
	require.LessOrEqual(t, v.Replies.Doubled, int64(kills*inFlightPerSender), "G8: not more than what was in flight at the kills of senders")
	for _, a := range v.Anomalies {
		require.Equal(t, "doubled", a.Kind)
		require.Contains(t, users, a.OpenID, "a doubled reply whose user has no flagged row: %+v", a)
	}
	c := sums.atRest()
	require.Equal(t, b.accepted.Load(), w.delivered(), "G20: a row for each push, delivered")
	if full > 0 {
		require.GreaterOrEqual(t, v.Callbacks.Acked, int64(20_000))
	}
	ci(t, "G1   | bar: 20,000 callbacks, 30 kill -9 (here %d): what was acked is answered at the user, lost 0 | measured: %d acked, lost %d | kept", 3*kills, v.Callbacks.Acked, v.Replies.Lost+v.Replies.Pending)
	sums.row(t, c)
	ci(t, "%d kill -9 of each of proxy, robot, sender: %d callbacks acked, %d answered, %d pushes accepted, %d seen; work in flight at every kill, %.0f rebalances; lost 0, out of order 0, pushes doubled 0, replies doubled %d (flagged %d)",
		kills, v.Callbacks.Acked, v.Replies.Answered, b.accepted.Load(), v.Pushes.Visible, rebalances, v.Replies.Doubled, flagged)
}

// rebalances waits until the robot that was killed last is back in the group
// and counts the generations that the living processes have seen.
func (w *world) rebalances() float64 {
	w.t.Helper()
	count := func(name string) float64 { return robots(w.parts[name]) }
	w.wait("both robots to be in the group", func() bool { return count("robot0") > 0 && count("robot1") > 0 })
	return count("robot0") + count("robot1")
}

// killUnderLoad waits until there is work in flight, kills the process, lets
// the others take over and starts it again, each for so many acks. It gives the rebalances that the
// killed process had counted.
func (w *world) killUnderLoad(name string, share int64) (rebalances float64) {
	w.t.Helper()
	p := w.parts[name]
	rebalances = robots(p)
	w.waitForWork()
	before := w.sim.Verdict(0)
	p.Kill()
	require.Positive(w.t, inFlight(before), "no work in flight when %s was killed", name)
	// The rest of the deployment must go on without it.
	w.waitForAcks(before.Callbacks.Acked + share)
	p.Restart()
	w.waitForAcks(w.sim.Verdict(0).Callbacks.Acked + share)
	return rebalances
}

// robots counts the generations of its group that a robot has seen.
func robots(p *herd.Process) float64 {
	if !strings.HasPrefix(p.Name, "robot") {
		return 0
	}
	return p.Metric("tidegate_kafka_rebalances_total")
}

// inFlight is what was promised and not yet done: callbacks under way,
// replies and pushes outstanding.
func inFlight(v wechatsim.Verdict) int64 {
	return v.Callbacks.InFlight + v.Replies.Lost + v.Replies.Pending + v.Pushes.Lost + v.Pushes.Pending
}

func (w *world) waitForWork() {
	w.t.Helper()
	w.wait("work in flight", func() bool { return inFlight(w.sim.Verdict(0)) > 0 })
}

func (w *world) waitForAcks(n int64) {
	w.t.Helper()
	w.wait(fmt.Sprintf("%d acks", n), func() bool { return w.sim.Verdict(0).Callbacks.Acked >= n })
}

func (w *world) wait(what string, done func() bool) {
	w.t.Helper()
	herd.Wait(w.t, what, 60*time.Second, done)
}

// flagged reads the rows that say "may have been seen twice", and whose.
func (w *world) flagged() (n int64, users map[string]bool) {
	w.t.Helper()
	db, err := sqldb.Open(w.t.Context(), sqldb.Config{Driver: sqldb.Postgres, DSN: w.dsn})
	require.NoError(w.t, err)
	defer db.Close()
	rows, err := db.Query(w.t.Context(), "SELECT openid FROM all_messages WHERE possible_duplicate <> 0")
	require.NoError(w.t, err)
	defer rows.Close()
	users = map[string]bool{}
	for rows.Next() {
		var openid string
		require.NoError(w.t, rows.Scan(&openid))
		users[openid] = true
		n++
	}
	require.NoError(w.t, rows.Err())
	return n, users
}
