package sender_test

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/control"
	"tidegate/pkg/redis"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// g23Var switches the long form on: real processes and kill -9.
const g23Var = "TIDEGATE_TEST_G23"

// campaignRate is what one of the two senders sends a second.
const campaignRate = 100

// campaign is a run of G23: pushes under way, and orders given to two senders.
type campaign struct {
	*world
	desk    *control.Panel
	db      *sqldb.DB
	kill    func(i int) // kills or stops a sender, and starts it again
	mu      sync.Mutex
	arrived map[string]time.Time
	all     []string
	doomed  []string
	late    time.Duration // the last departure behind an answer
	orders  int64
}

func newCampaign(t *testing.T) *campaign {
	c := &campaign{world: newWorld(t), arrived: map[string]time.Time{}}
	c.onArrival(func(e wechatsim.Entry) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.What == wechatsim.PathTemplateSend && c.arrived[e.ClientMsgID].IsZero() {
			c.arrived[e.ClientMsgID] = time.Now()
		}
	})
	var err error
	c.db, err = sqldb.Open(t.Context(), c.world.db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.db.Close()) })
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Prefix = []string{c.redisAddr}, c.prefix
	rc, err := redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rc.Close()) })
	c.desk, err = steer(t.Context(), c.db, rc, "desk")
	require.NoError(t, err)
	return c
}

// inProcess runs two senders here; one is stopped and made anew instead of
// killed.
func (c *campaign) inProcess() {
	begin := func(i int) *room {
		return c.start(steered, func(s *setup) {
			s.cfg.Node = fmt.Sprint("node-", i)
			s.limits.Template.Rate, s.limits.Template.Burst, s.limits.Template.Concurrency = campaignRate, 1, killInFlight
		})
	}
	rooms := []*room{begin(0), begin(1)}
	c.kill = func(i int) {
		rooms[i].stop()
		rooms[i] = begin(i)
	}
}

// processes runs two senders as processes of their own.
func (c *campaign) processes() {
	begin := func(i int) *exec.Cmd {
		return c.spawn(func(w *childWorld) { w.Steered, w.Node, w.Rate = true, fmt.Sprint("node-", i), campaignRate })
	}
	end := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill() // SIGKILL; Wait reports it
		_ = cmd.Wait()
		require.False(c.t, cmd.ProcessState.Success(), "it must have been killed")
	}
	running := []*exec.Cmd{begin(0), begin(1)}
	c.t.Cleanup(func() {
		for _, cmd := range running {
			end(cmd)
		}
	})
	c.kill = func(i int) {
		end(running[i])
		running[i] = begin(i)
	}
}

func (c *campaign) give(kind, name string, o *control.Order) time.Time {
	c.t.Helper()
	_, err := c.desk.SetOrder(c.t.Context(), control.OrderChange{Kind: kind, Name: name, To: o, By: "duty", Reason: "G23"})
	require.NoError(c.t, err)
	c.orders++
	return time.Now()
}

func (c *campaign) at(id string) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.arrived[id]
	return at, ok
}

func (c *campaign) count(ids []string) (n int) {
	for _, id := range ids {
		if _, ok := c.at(id); ok {
			n++
		}
	}
	return n
}

func (c *campaign) heldIDs() map[string]bool {
	c.t.Helper()
	rows, err := c.db.Query(c.t.Context(), "SELECT id FROM held")
	require.NoError(c.t, err)
	defer func() { _ = rows.Close() }()
	out := map[string]bool{}
	for rows.Next() {
		var id string
		require.NoError(c.t, rows.Scan(&id))
		out[id] = true
	}
	require.NoError(c.t, rows.Err())
	return out
}

func (c *campaign) until(what string, ok func() bool) {
	c.t.Helper()
	require.Eventually(c.t, ok, 90*time.Second, 10*time.Millisecond, what)
}

// atRest waits until each message has left or is held.
func (c *campaign) atRest(ids []string) {
	c.t.Helper()
	c.until("every message has left or is held", func() bool {
		held := c.heldIDs()
		for _, id := range ids {
			if _, left := c.at(id); !left && !held[id] {
				return false
			}
		}
		return true
	})
}

// round pauses a campaign that is under way, with a kill behind it, cancels a
// part of what waits, and lets the rest go.
func (c *campaign) round(n, size int) {
	var ids, doomed []string
	for i := range size {
		ids = append(ids, c.push(fmt.Sprintf("%d-%d", n, i), func(p *wire.Push) { p.OpenID, p.Lane = c.followers[i%20], wire.LaneBulk }))
	}
	c.until("the campaign is under way", func() bool { return c.count(ids) >= size/10 })
	answered := c.give(control.KindPause, "g23", &control.Order{Account: account, Lane: wire.LaneBulk})
	c.kill(n % 2)
	for i := range size / 10 {
		doomed = append(doomed, c.push(fmt.Sprintf("%d-doomed-%d", n, i), func(p *wire.Push) {
			p.OpenID, p.Lane, p.App = c.followers[i%20], wire.LaneBulk, "doomed"
		}))
	}
	c.atRest(append(ids, doomed...))
	before := c.count(ids)
	require.Less(c.t, before, size, "the pause must have come before the campaign's end")
	for _, id := range ids {
		if at, left := c.at(id); left {
			c.late = max(c.late, at.Sub(answered))
		}
	}
	c.give(control.KindCancel, fmt.Sprint("c", n), &control.Order{App: "doomed"})
	for _, id := range doomed {
		require.Equal(c.t, wire.Cancelled, c.ended(id).State)
	}
	require.Equal(c.t, before, c.count(ids), "nothing leaves during the pause")
	c.give(control.KindPause, "g23", nil)
	c.until("the campaign goes on", func() bool { return c.count(ids) == size && len(c.heldIDs()) == 0 })
	c.all, c.doomed = append(c.all, ids...), append(c.doomed, doomed...)
}

// G23: orders hold, over all nodes, and still after kills; what is cancelled
// never goes; each order is in the audit once.
func TestG23OrdersHold(t *testing.T) {
	t.Parallel()
	rounds, size, bar := 1, 60, 0*time.Second
	c := newCampaign(t)
	if os.Getenv(g23Var) != "" {
		rounds, size, bar = 10, 200, time.Second
		c.processes()
	} else {
		c.inProcess()
	}
	for n := range rounds {
		c.round(n, size)
	}
	visible := map[string]int{}
	for _, e := range c.arrivals(wechatsim.PathTemplateSend) {
		if e.Visible {
			visible[e.ClientMsgID]++
		}
	}
	lost, doubled := 0, 0
	for _, id := range c.all {
		if visible[id] == 0 {
			lost++
		}
		doubled += max(0, visible[id]-1)
	}
	proof, err := c.desk.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, proof.Broken)
	rows := []struct {
		what, bar, measured string
		ok                  bool
	}{
		{"last departure after a pause was answered", map[bool]string{true: "not timed", false: fmt.Sprint("<= ", bar)}[bar == 0], c.late.Round(time.Millisecond).String(), bar == 0 || c.late <= bar},
		{"cancelled messages that left", "0", fmt.Sprint(c.count(c.doomed)), c.count(c.doomed) == 0},
		{"messages lost", "0", fmt.Sprint(lost), lost == 0},
		{"messages seen twice", "0", fmt.Sprint(doubled), doubled == 0},
		{"orders in the audit", fmt.Sprint(c.orders), fmt.Sprint(proof.Entries), proof.Entries == c.orders},
	}
	t.Logf("| %-44s | %-9s | %-9s | verdict", fmt.Sprintf("G23: %d pauses, %d kills, 2 senders, %d pushes", rounds, rounds, len(c.all)), "bar", "measured")
	for _, r := range rows {
		verdict := "holds"
		if !r.ok {
			verdict = "FAILS"
		}
		t.Logf("| %-44s | %-9s | %-9s | %s", r.what, r.bar, r.measured, verdict)
	}
	for _, r := range rows {
		require.True(t, r.ok, "%s: %s", r.what, r.measured)
	}
}
