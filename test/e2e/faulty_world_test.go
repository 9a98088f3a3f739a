//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// business is the back end that every callback asks. How long it takes is set
// while it runs.
type business struct {
	url   string
	takes atomic.Int64 // ns
	slow  atomic.Int64 // answers that took a second and more

	mu    sync.Mutex
	calls map[string]int // by Idempotency-Key
}

func newBusiness(t *testing.T, takes time.Duration) *business {
	b := &business{calls: map[string]int{}}
	b.takes.Store(int64(takes))
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

func (b *business) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	b.mu.Lock()
	b.calls[r.Header.Get("Idempotency-Key")]++
	b.mu.Unlock()
	takes := time.Duration(b.takes.Load())
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return
	}
	if takes >= time.Second {
		b.slow.Add(1)
	}
	_, _ = io.WriteString(w, `{"text":"done"}`)
}

// again counts the callbacks that were worked more than once.
func (b *business) again() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, calls := range b.calls {
		if calls > 1 {
			n++
		}
	}
	return n
}

// group looks at the consumer group of the robots, as Kafka sees it.
type group struct {
	w     *world
	admin *kafka.Admin
	name  string
	topic string
}

func (w *world) robots() *group {
	w.t.Helper()
	a, err := kafka.NewAdmin(w.kafka())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = a.Close() })
	return &group{w: w, admin: a, name: wire.RobotGroup(w.prefix+".robot", "card"), topic: wire.Topics{Prefix: w.prefix}.Callbacks("card")}
}

func (w *world) kafka() kafka.Config {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{engine(w.t, "KAFKA")}
	return cfg
}

// owners gives the process that holds each partition; empty while they move.
func (g *group) owners() map[int32]string {
	all, err := g.admin.Owners(g.w.t.Context(), []string{g.name})
	if err != nil {
		return nil
	}
	out := map[int32]string{}
	for p, who := range all[g.name][g.topic] {
		out[p], _, _ = strings.Cut(who, " at ")
	}
	return out
}

// await waits until exactly these processes hold all partitions.
func (g *group) await(names ...string) map[int32]string {
	g.w.t.Helper()
	var got map[int32]string
	g.w.wait(fmt.Sprintf("the partitions to be with %v", names), func() bool {
		got = g.owners()
		var seen []string
		for _, who := range got {
			if !slices.Contains(seen, who) {
				seen = append(seen, who)
			}
		}
		slices.Sort(seen)
		return len(got) == faultyPartitions && slices.Equal(seen, names)
	})
	return got
}

// moved gives the partitions that changed hands, which must be all of those that
// the faulty process had and no other.
func (g *group) moved(before, after map[int32]string, faulty string) map[int32]bool {
	g.w.t.Helper()
	out := map[int32]bool{}
	for p, who := range before {
		if after[p] != who {
			out[p] = true
			require.Equal(g.w.t, faulty, who, "partition %d moved from %s to %s", p, who, after[p])
		}
		require.NotEqual(g.w.t, faulty, after[p])
	}
	require.NotEmpty(g.w.t, out, "%s had no partition", faulty)
	return out
}

// phase is a span of the journal's time in which some partitions were without
// a sound robot.
type phase struct {
	from, to int64
	moved    map[int32]bool
}

// times are the reply times of the callbacks that users sent in a phase.
type times struct{ moved, others []time.Duration }

func p99(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)*99/100].Round(time.Millisecond)
}

func worst(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Max(d).Round(time.Millisecond)
}

// replyTimes reads the journal: from a user's message to the first reply to it.
func (w *world) replyTimes(ph phase) times {
	w.t.Helper()
	type sent struct {
		at     int64
		openid string
	}
	asked := map[string]sent{}
	var out times
	entries, _ := w.sim.Journal().Read(0, 1<<30, nil)
	for _, e := range entries {
		switch {
		case e.Kind == wechatsim.KindStimulus && e.At >= ph.from && e.At < ph.to:
			for _, mark := range e.Tokens {
				asked[mark] = sent{e.At, e.OpenID}
			}
		case e.Kind == wechatsim.KindArrival && e.Visible:
			for _, mark := range e.Tokens {
				q, ok := asked[mark]
				if !ok {
					continue
				}
				delete(asked, mark)
				took := time.Duration(e.At - q.at)
				if ph.moved[kafka.Partition([]byte(q.openid), faultyPartitions)] {
					out.moved = append(out.moved, took)
				} else {
					out.others = append(out.others, took)
				}
			}
		}
	}
	require.Empty(w.t, asked, "messages of this phase without a reply")
	return out
}

// replies reads the replies topic: when each id was published.
func (w *world) replies() map[string][]time.Time {
	w.t.Helper()
	topic := wire.Topics{Prefix: w.prefix}.Replies("card")
	a, err := kafka.NewAdmin(w.kafka())
	require.NoError(w.t, err)
	defer a.Close()
	reader := w.prefix + ".look"
	lags, err := a.Lag(w.t.Context(), reader, []string{topic})
	require.NoError(w.t, err)
	var want int64
	for _, l := range lags {
		want += l.End
	}
	var mu sync.Mutex
	got, n, done := map[string][]time.Time{}, int64(0), make(chan struct{})
	g, err := kafka.NewGroup(w.kafka(), kafka.GroupOptions{Group: reader, Topics: []string{topic}, Handler: func(_ context.Context, r kafka.Record) error {
		mu.Lock()
		defer mu.Unlock()
		id := wire.HeaderValue(r.Headers, wire.HeaderID)
		got[id] = append(got[id], r.Timestamp)
		if n++; n == want {
			close(done)
		}
		return nil
	}}, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(w.t, err)
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	cancel()
	require.NoError(w.t, <-ended)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(w.t, want, n, "the replies topic could not be read to its end")
	return got
}

// logged counts the lines of a process's log that say this, with these fields.
func (w *world) logged(name, msg string, fields ...string) (n int) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.herd.Dir, name+".log"))
	require.NoError(w.t, err)
	for line := range strings.Lines(string(text)) {
		var l map[string]any
		if json.Unmarshal([]byte(line), &l) != nil || l["msg"] != msg {
			continue
		}
		fits := true
		for i := 0; i < len(fields); i += 2 {
			fits = fits && l[fields[i]] == fields[i+1]
		}
		if fits {
			n++
		}
	}
	return n
}

// requireAlarm demands that a process told an alarm once, and its end once.
func (w *world) requireAlarm(name, alarm string) {
	w.t.Helper()
	w.wait(name+" to resolve "+alarm, func() bool { return w.logged(name, "alarm resolved", "alarm", alarm) == 1 })
	require.Equal(w.t, 1, w.logged(name, "alarm", "alarm", alarm))
}

// told counts the alarms of the door's watch over the callbacks by name, with
// the text of the last one.
type told map[string]int

func (w *world) told(msg string) told {
	w.t.Helper()
	out := told{}
	w.eachQueueAlarm(msg, func(name, _ string) { out[name]++ })
	return out
}

func (w *world) eachQueueAlarm(msg string, each func(name, text string)) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.herd.Dir, "proxy0.log"))
	require.NoError(w.t, err)
	for line := range strings.Lines(string(text)) {
		var l struct{ Msg, Alarm, Subject, Text string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == msg && strings.HasPrefix(l.Alarm, "queue_") && l.Subject == "callbacks card" {
			each(l.Alarm, l.Text)
		}
	}
}

func (a told) since(before told) told {
	out := told{}
	for k, n := range a {
		if n > before[k] {
			out[k] = n - before[k]
		}
	}
	return out
}

func (a told) String() string {
	keys := slices.Sorted(maps.Keys(a))
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%s x%d", k, a[k])
	}
	return "[" + strings.Join(keys, ", ") + "]"
}

// requireOf demands that the watch told each alarm of this phase once, and that
// each named partitions of the faulty robot and no others. What queue_faulty says
// too gives way to it, and may come back while the rest of the line is worked.
func (w *world) requireOf(alarms told, before told, moved map[int32]bool) {
	w.t.Helper()
	require.NotEmpty(w.t, alarms, "the watch over the queues must have noticed")
	seen := told{}
	w.eachQueueAlarm("alarm", func(name, text string) {
		seen[name]++
		if seen[name] <= before[name] {
			return
		}
		most := 1
		if name != "queue_faulty" && alarms["queue_faulty"] > 0 {
			most = 2
		}
		require.LessOrEqual(w.t, alarms[name], most, "%s was told too often, of %s: %s", name, alarms, text)
		_, list, ok := strings.Cut(text, "partitions (")
		require.True(w.t, ok, "an alarm for the whole queue: %s", text)
		list, _, _ = strings.Cut(list, ")")
		for n := range strings.SplitSeq(list, ", ") {
			p, err := strconv.ParseInt(n, 10, 32)
			require.NoError(w.t, err, text)
			require.True(w.t, moved[int32(p)], "an alarm for a partition of a sound robot: %s", text)
		}
	})
}

// quiet waits until what the door has told about the callbacks is resolved, and
// gives it.
func (w *world) quiet() (all told) {
	w.t.Helper()
	w.wait("the door's alarms to be resolved", func() bool {
		all = w.told("alarm")
		return maps.Equal(all, w.told("alarm resolved"))
	})
	return all
}
