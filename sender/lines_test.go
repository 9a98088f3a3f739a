package sender_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/sender/line"
)

// wireTo is a way to an address that can be cut with everything on it.
type wireTo struct {
	target string
	l      net.Listener
	all    sync.WaitGroup

	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func newWire(t *testing.T, target string) *wireTo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wireTo{target: strings.TrimPrefix(target, "http://"), l: l}
	w.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.join(c)
		}
	})
	t.Cleanup(func() { w.cut(); w.all.Wait() })
	return w
}

func (w *wireTo) join(c net.Conn) {
	far, err := net.Dial("tcp", w.target)
	if err != nil {
		_ = c.Close()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c, far)
	if w.dead {
		_, _ = c.Close(), far.Close()
	}
	for _, pair := range [][2]net.Conn{{c, far}, {far, c}} {
		w.all.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_, _ = pair[0].Close(), pair[1].Close()
		})
	}
}

// cut ends the way and whatever is on it; nothing comes back.
func (w *wireTo) cut() {
	_ = w.l.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, c := range w.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

// linesLong has the test go for long and judge times; otherwise it counts.
const linesLong = "TIDEGATE_TEST_LINES"

// M3, T45: all ways to WeChat but one are cut, one after the other, under load.
// Sends go on by the next one within two seconds, nothing is lost, no template comes
// twice, no reply comes twice without being flagged; then one switch by hand.
func TestLinesAreCutUnderLoad(t *testing.T) {
	t.Parallel()
	names, each, rate, places := []string{"one", "two", "three"}, 24, 150.0, 3
	if os.Getenv(linesLong) != "" {
		names, each, rate, places = []string{"one", "two", "three", "four", "five"}, 600, 150, 32
	}
	w := newWorld(t)
	require.NoError(t, w.sim.SetFaults(wechatsim.Fault{Do: wechatsim.FaultSlow, DelayMS: 10, API: wechatsim.PathTemplateSend}, wechatsim.Fault{Do: wechatsim.FaultSlow, DelayMS: 10, API: wechatsim.PathCustomSend}))
	var wires []*wireTo
	var configs []line.Config
	for _, name := range append(slices.Clone(names), "by hand") {
		wires = append(wires, newWire(t, w.sim.URL()))
		configs = append(configs, line.Config{Name: strings.ReplaceAll(name, " ", "-"), BaseURL: "http://" + wires[len(wires)-1].l.Addr().String()})
	}
	fleet, err := line.New(configs, line.DefaultHealth(), line.Deps{Log: zap.NewNop(), Reg: prometheus.NewRegistry()})
	require.NoError(t, err)
	require.NoError(t, fleet.SetAccounts(map[string][]string{account: names}))
	calls := wechat.NewClientBy(fleet, 0)
	t.Cleanup(calls.CloseIdle)
	pushes, replies := map[string]string{}, map[string]string{}
	for i := range each * len(names) {
		name := fmt.Sprintf("message %05d", i)
		pushes[w.push(name, func(p *wire.Push) { p.OpenID = w.followers[i%20] })] = name
		replies[w.reply(name, func(r *wire.Reply) { r.OpenID = w.followers[i%20] })] = name
	}
	w.start(func(s *setup) {
		s.wechat = calls
		s.limits.Replies = ratelimit.Limit{Rate: rate, Burst: 1, Concurrency: places}
		s.limits.Template = s.limits.Replies
	})
	by := func(name string, since time.Time) (n int, first time.Time) {
		for _, rec := range w.receipts.all() {
			r, err := wire.Decode[wire.Receipt](rec.Value, rec.Headers)
			require.NoError(t, err)
			at := time.UnixMilli(r.At)
			if r.Line != name || at.Before(since) || r.State != wire.Accepted {
				continue
			}
			if n++; first.IsZero() || at.Before(first) {
				first = at
			}
		}
		return n, first
	}
	fmt.Fprintf(os.Stdout, "%-14s %-34s %-14s %s\n", "lines", "bar", "measured", "verdict")
	slowest := time.Duration(0)
	began := time.Time{}
	for i, name := range names {
		var first time.Time
		require.Eventually(t, func() bool { var n int; n, first = by(name, began); return n >= each/2 }, time.Minute, 10*time.Millisecond, "nothing goes by line %s", name)
		if i > 0 {
			gap := first.Sub(began)
			slowest = max(slowest, gap)
			fmt.Fprintf(os.Stdout, "%-14s %-34s %-14s %s\n", names[i-1]+" cut", "goes on within 2s", gap.Round(time.Millisecond), verdict(gap <= 2*time.Second))
		}
		if i < len(names)-1 {
			began = time.Now()
			wires[i].cut()
		}
	}
	fleet.Choose(map[string]line.Choice{account: {Line: "by-hand", By: "duty"}})
	began = time.Now()
	require.Eventually(t, func() bool { return len(w.receipts.all()) >= len(pushes)+len(replies) }, 3*time.Minute, 10*time.Millisecond, "messages are lost")
	for id := range pushes {
		require.Equal(t, wire.Accepted, w.outcome(id).State)
	}
	flagged := map[string]bool{}
	for id, text := range replies {
		got := w.outcome(id)
		require.Equal(t, wire.Accepted, got.State)
		flagged[text] = got.PossibleDuplicate
	}
	switched, _ := by("by-hand", began)
	seen, texts := map[string]int{}, map[string]int{}
	for _, e := range w.arrivals(wechatsim.PathTemplateSend) {
		if e.Visible {
			seen[e.ClientMsgID]++
		}
	}
	for _, e := range w.arrivals(wechatsim.PathCustomSend) {
		if e.Visible {
			texts[e.Text]++
		}
	}
	lost, doubledPushes, doubled, unflagged := len(pushes)-len(seen)+len(replies)-len(texts), 0, 0, 0
	for _, n := range seen {
		doubledPushes += n - 1
	}
	for text, n := range texts {
		doubled += n - 1
		if n > 1 && !flagged[text] {
			unflagged++
		}
	}
	for _, l := range []struct {
		what, bar string
		got       int
		good      bool
	}{
		{"messages", "lost 0", lost, lost == 0}, {"templates", "doubled 0", doubledPushes, doubledPushes == 0},
		{"replies", fmt.Sprintf("doubled without a flag 0 (of %d)", doubled), unflagged, unflagged == 0},
		{"by hand", "the switch is followed", switched, switched > 0},
	} {
		fmt.Fprintf(os.Stdout, "%-14s %-34s %-14d %s\n", l.what, l.bar, l.got, verdict(l.good))
		require.True(t, l.good, "%s: %s", l.what, l.bar)
	}
	for _, v := range fleet.Lines()[:len(names)-1] {
		require.NotEqual(t, line.Up, v.State, "line %s must have been cut", v.Name)
	}
	if os.Getenv(linesLong) != "" {
		require.LessOrEqual(t, slowest, 2*time.Second, "sends go on within two seconds of each cut")
	}
}

func verdict(good bool) string {
	if good {
		return "ok"
	}
	return "MISSED"
}
