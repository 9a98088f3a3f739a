//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"encoding/json"

	"github.com/stretchr/testify/require"

	"tidegate/client"
	"tidegate/pkg/wechat/wechatsim"
)

// ci prints a line that the CI shows.
func ci(t *testing.T, format string, args ...any) { t.Helper(); t.Logf("CI: "+format, args...) }

// pushes is a business system: it posts through all senders, with a key, until
// each push is accepted.
type pushes struct {
	w        *world
	users    []string
	accepted atomic.Int64
	mu       sync.Mutex
	ids      []string
}

func (w *world) business() *pushes {
	w.t.Helper()
	users, err := w.sim.Followers("", 0)
	require.NoError(w.t, err)
	return &pushes{w: w, users: users}
}

// offer posts n pushes at a rate; senders take turns, and the next one is
// asked when one is down, as a load balancer does.
func (p *pushes) offer(ctx context.Context, senders, n int, rate float64) error {
	clients := make([]*client.Client, senders)
	for i := range clients {
		clients[i] = p.w.client(i)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	errs := make(chan error, n)
	begun := time.Now()
	for i := range n {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(begun.Add(time.Duration(float64(i) / rate * float64(time.Second))))):
		}
		openid, mark := p.users[i%len(p.users)], p.w.sim.Mark()
		if err := p.w.sim.ExpectPush("", openid, mark); err != nil {
			return err
		}
		wg.Go(func() { errs <- p.post(clients, i, openid, mark) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pushes) post(clients []*client.Client, i int, openid, mark string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	push := client.Push{
		Account: "card", OpenID: openid, TemplateID: "NOTICE", Reference: mark, IdempotencyKey: mark,
		Data: map[string]string{"thing1": mark}, // things have at most 20 characters
	}
	for try := 0; ; try++ {
		done, err := clients[(i+try)%len(clients)].Push(ctx, push)
		if err == nil {
			p.accepted.Add(1)
			p.mu.Lock()
			p.ids = append(p.ids, done.ID)
			p.mu.Unlock()
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("push %s: %w", mark, err)
		}
	}
}

// settle waits until every cause has its effect; what has none by then counts
// as lost in the verdict.
func (w *world) settle(limit time.Duration) wechatsim.Verdict {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	if err := w.sim.Idle(ctx); err != nil {
		w.t.Logf("not idle: %v", err)
	}
	return w.sim.Verdict(0)
}

// requireRight demands what is promised without kills.
func requireRight(t *testing.T, v wechatsim.Verdict) {
	t.Helper()
	require.True(t, v.Complete)
	require.Zero(t, v.Replies.Lost+v.Replies.Pending, "lost replies: %+v", few(v))
	require.Zero(t, v.Replies.Doubled, "doubled replies: %+v", few(v))
	require.Zero(t, v.Replies.OutOfOrder, "disordered: %+v", few(v))
	require.Zero(t, v.Replies.Unexpected, "unexpected: %+v", few(v))
	requirePushesRight(t, v)
}

// few gives the first findings; there may be thousands.
func few(v wechatsim.Verdict) []wechatsim.Anomaly { return v.Anomalies[:min(len(v.Anomalies), 3)] }

func requirePushesRight(t *testing.T, v wechatsim.Verdict) {
	t.Helper()
	require.Zero(t, v.Pushes.Lost+v.Pushes.Pending, "lost pushes: %+v", few(v))
	require.Zero(t, v.Pushes.Doubled, "doubled pushes: %+v", few(v))
	require.Zero(t, v.Pushes.Misdirected, "misdirected pushes: %+v", few(v))
}

// The whole road with separate processes on real engines: 2,000 callbacks and
// 500 pushes, two of every role that shares work.
func TestMainRoad(t *testing.T) {
	w := newWorld(t, shape{partitions: 8, proxies: 2, robots: 2, senders: 2, receiptsWorkers: 1, followers: 200})
	b := w.business()
	sums := w.watchSums(2, false)
	pushed := make(chan error, 1)
	go func() { pushed <- b.offer(t.Context(), 2, 500, 40) }()
	report, err := w.sim.Load(t.Context(), wechatsim.LoadSpec{
		Count: 2000, Rate: 150, Loop: wechatsim.LoopClosed, Mix: wechatsim.Mix{Text: 8, Menu: 2},
		RepeatShare: 0.02, ParallelShare: 0.05, LoseAckShare: 0.02, MenuKey: "BILL:",
	})
	require.NoError(t, err)
	require.NoError(t, <-pushed)
	v := w.settle(60 * time.Second)
	requireRight(t, v)
	require.GreaterOrEqual(t, report.Acked, int64(2000))
	require.Equal(t, int64(500), b.accepted.Load())
	require.Equal(t, int64(500), v.Pushes.Visible)
	w.requireJoined(b, 500)
	ci(t, "end to end, 2 proxies, 2 robots, 2 senders, receipts as separate processes: %d callbacks acked, %d replies, ack p50 %.1f ms p99 %.1f ms, %d hasty repeats, %d deliveries; %d pushes accepted, %d seen, all receipts joined; lost 0, doubled 0, out of order 0",
		v.Callbacks.Acked, v.Replies.Answered, v.Callbacks.AckP50Ms, v.Callbacks.AckP99Ms, v.Callbacks.UserRepeats, v.Callbacks.Deliveries, b.accepted.Load(), v.Pushes.Visible)
	w.eventsBeforeAnswers(b)
	sums.row(t, sums.atRest())
	w.requireKcat()
}

// requireJoined asks the public API for each push until WeChat's receipt has
// been joined.
func (w *world) requireJoined(b *pushes, n int) {
	w.t.Helper()
	c, err := client.New("http://"+w.addr["receipts0"], w.key, client.Options{})
	require.NoError(w.t, err)
	require.Len(w.t, b.ids, n)
	deadline := time.Now().Add(30 * time.Second)
	for _, id := range b.ids {
		for {
			m, err := c.Message(w.t.Context(), id)
			if err == nil && m.State == "delivered" {
				break
			}
			require.True(w.t, time.Now().Before(deadline), "push %s is %q (%v): the receipt was not joined", id, m.State, err)
			select {
			case <-w.t.Context().Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// requireKcat reads an account's callbacks with an independent Kafka client:
// the key is the openid, the headers are those of D5, the value is JSON.
func (w *world) requireKcat() {
	w.t.Helper()
	path, err := exec.LookPath("kcat")
	require.NoError(w.t, err, "kcat is missing: apt-get install kcat")
	out, err := exec.Command(path, "-b", engine(w.t, "KAFKA"), "-t", w.prefix+".card.callbacks", "-C", "-o", "beginning", "-c", "20", "-e", "-q", "-f", "%k\t%h\t%s\n").Output()
	require.NoError(w.t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.NotEmpty(w.t, lines)
	for _, line := range lines {
		parts := strings.SplitN(line, "\t", 3)
		require.Len(w.t, parts, 3, line)
		var letter struct {
			ID     string `json:"id"`
			OpenID string `json:"openid"`
		}
		require.NoError(w.t, json.Unmarshal([]byte(parts[2]), &letter))
		require.Equal(w.t, parts[0], letter.OpenID)
		for _, h := range []string{"v=1", "kind=callback", "id=" + letter.ID, "traceparent=00-"} {
			require.Contains(w.t, parts[1], h)
		}
	}
	version, _ := exec.Command(path, "-V").CombinedOutput()
	ci(w.t, "kcat (%s) read %d callbacks: key = openid, headers v, kind, id, traceparent, JSON", strings.TrimSpace(lastLine(string(version))), len(lines))
}

func lastLine(s string) string {
	for _, l := range strings.Split(s, "\n") {
		if strings.Contains(l, "Version") {
			return l
		}
	}
	return s
}
