//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

const tenantRules = `
version: 1
fallback: "busy"
rules:
  - {name: sick, level: vital, accounts: [shop], match: {message_type: text}, call: {backend: sick, method: POST, path: /sick, body: {text: "{{ .Content }}"}}, reply: [{text: "done {{ .Content }}"}]}
  - {name: well, match: {message_type: text}, call: {backend: well, method: POST, path: /well, body: {text: "{{ .Content }}"}}, reply: [{text: "done {{ .Content }}"}]}
`

// tenants (G21): the business system of one account hardly answers any more, all
// workers and permits of the account are taken, and the users of the other
// account, in the same processes, hardly notice.
func tenants(t *testing.T, e *engines, n robotNumbers) {
	const users = 100
	c, sick := newCore(t, 5*time.Millisecond), atomic.Bool{}
	c.stuck = func(path string) bool { return sick.Load() && path == "/sick" }
	sim := newSim(t, users, users)
	backend := func(name string) string {
		return fmt.Sprintf("{name: %s, base_url: %q, timeout: 20s, attempts: 1, rate: 10000, burst: 1000, concurrency: 50}", name, c.url)
	}
	robots := fmt.Sprintf("robot: {session_timeout: 2s, backends: [%s, %s]}", backend("sick"), backend("well"))
	r := newRoad(newWorld(t, e, shape{doors: 1, extra: apis(sim, robots), rules: tenantRules}), sim)
	shop, err := sim.Followers(accounts[1].AppID, 0)
	require.NoError(t, err)
	openWindowsOf(t, sim, accounts[1].AppID, shop)
	r.seen, _ = sim.Journal().Len()
	r.robot()
	r.robot()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sent := make(chan drive.Sum, 1)
	go func() {
		sent <- r.drive.Open(ctx, drive.Load{Rate: r.rate(150), Dice: r.dice, Act: func(i int) drive.Act {
			if i%3 == 0 {
				return r.asks(r.text(i, accounts[1].Name, shop[i/3%users]))
			}
			return r.act(i%users, i)
		}})
	}()
	phase := func() (p50, p99 time.Duration) {
		from := r.sim.Journal().Now()
		before := r.drive.Acked()
		herd.Wait(t, "messages", r.patience(3*time.Minute), func() bool { return r.drive.Acked() >= before+int64(n.tenants)*3/2 })
		to := r.sim.Journal().Now()
		r.answered(accounts[0].Name, to)
		waits := r.waits(accounts[0].Name, from, to)
		slices.Sort(waits)
		return waits[len(waits)/2], waits[len(waits)*99/100]
	}
	phase() // warm
	_, calm := phase()
	sick.Store(true)
	hung := c.inside.Load
	herd.Wait(t, "calls that are stuck", r.patience(time.Minute), func() bool { return hung() >= 40 })
	_, ill := phase()
	inside := hung()
	sick.Store(false)
	stop()
	<-sent
	v := r.judged()
	// A machine of two cores is not so quiet that 20 % of a few milliseconds could be measured.
	require.LessOrEqual(t, ill, max(calm*12/10, calm+50*time.Millisecond), "users of the account that is well")
	crossed := v.Found["cross-account"] + v.Found["misdirected"]
	row(t, "G21", "two accounts, one is stuck: p99 of the other rises <= 20 % (or 50 ms); 0 crossings", "%d calls stuck at once; p99 of the other %s in calm, %s then; crossings %d, lost %d",
		inside, calm.Round(time.Millisecond), ill.Round(time.Millisecond), crossed, v.lost)
}
