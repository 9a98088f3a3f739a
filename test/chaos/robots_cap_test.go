//go:build chaos

package chaos

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

// core is a business system that counts who is in it.
type core struct {
	url               string
	takes             atomic.Int64 // ns
	inside, most, all atomic.Int64
	stuck             func(path string) bool
}

func newCore(t *testing.T, takes time.Duration) *core {
	c := &core{stuck: func(string) bool { return false }}
	c.takes.Store(int64(takes))
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

func (c *core) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	now := c.inside.Add(1)
	defer c.inside.Add(-1)
	for {
		most := c.most.Load()
		if now <= most || c.most.CompareAndSwap(most, now) {
			break
		}
	}
	c.all.Add(1)
	takes := time.Duration(c.takes.Load())
	if c.stuck(r.URL.Path) {
		takes = 3 * time.Second
	}
	select {
	case <-time.After(takes):
		_, _ = io.WriteString(w, "{}")
	case <-r.Context().Done():
	}
}

const coreRules = `
version: 1
fallback: "busy"
rules:
  - name: ask
    match: {message_type: text}
    call: {backend: %s, method: POST, path: /ask, body: {text: "{{ .Content }}"}}
    reply: [{text: "done {{ .Content }}"}]
`

// backendCap (G12): however many robots there are, and whoever of them dies, the
// business system sees no more calls at once than it was promised.
func backendCap(t *testing.T, e *engines, n robotNumbers) {
	const most = 20
	c, users := newCore(t, 100*time.Millisecond), 200
	sim := newSim(t, users)
	robots := fmt.Sprintf("robot: {session_timeout: 2s, backends: [{name: core, base_url: %q, timeout: 5s, rate: 100000, burst: 1000, concurrency: %d}]}", c.url, most)
	r := newRoad(newWorld(t, e, shape{doors: 1, extra: apis(sim, robots), rules: fmt.Sprintf(coreRules, "core")}), sim)
	for range 4 {
		r.robot()
	}
	sent := make(chan drive.Sum, 1)
	go func() {
		sent <- r.drive.Open(t.Context(), drive.Load{Rate: r.rate(300), Count: n.capped, Act: func(i int) drive.Act { return r.act(i%users, i) }, Dice: r.dice})
	}()
	kills := 0
	for i := range 4 {
		at := int64(n.capped * (i + 1) / 6)
		herd.Wait(t, fmt.Sprint(at, " calls"), r.patience(2*time.Minute), func() bool { return c.all.Load() >= at })
		herd.Wait(t, "calls in hand", r.patience(time.Minute), func() bool { return c.inside.Load() > 0 })
		p := r.robots[i]
		p.Kill()
		kills++
		r.goOn(20)
		p.Restart()
	}
	require.Zero(t, (<-sent).Skipped)
	v := r.judged()
	require.LessOrEqual(t, c.most.Load(), int64(most), "calls at once")
	row(t, "G12", "C = 20, 4 nodes, kills: at most 20 calls at once", "most at once %d of %d calls, %d kills of robots; acked %d, answered %d, of these with the text for overload %d, lost %d, doubled %d, inversions %d",
		c.most.Load(), c.all.Load(), kills, v.acked, v.Replies, r.refused, v.lost, v.Found["duplicate"], v.inversions)
}
