package sender_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/sqldb"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// childEnv carries the world of a sender that runs as a process of its own, so
// that it can be killed for real.
const childEnv = "TIDEGATE_SENDER_TEST_CHILD"

type childWorld struct {
	Kafka, Prefix, Redis, WeChat string
	DB                           sqldb.Config
	Steered                      bool    // it follows operators' orders
	Node                         string  // and is called this by them
	Rate                         float64 // of template messages; 0 is the default
	Shared                       bool    // caps hold over all of them
	Template                     ratelimit.Limit
}

func TestMain(m *testing.M) {
	if v := os.Getenv(childEnv); v != "" {
		child(v)
		return
	}
	goleak.VerifyTestMain(m)
}

// child is the sender process; it ends only by being killed.
func child(v string) {
	var c childWorld
	if err := json.Unmarshal([]byte(v), &c); err != nil {
		panic(err)
	}
	testing.Init()
	cfg := kafka.Config{Brokers: []string{c.Kafka}}
	producer, err := kafka.NewProducer(cfg, kafka.ProducerOptions{}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	s := defaults(producer)
	s.limits.Replies.Concurrency = killInFlight
	if s.steered = c.Steered; c.Steered {
		s.cfg.Node, s.limits.Template.Rate, s.limits.Template.Burst, s.limits.Template.Concurrency = c.Node, c.Rate, 1, killInFlight
	}
	if c.Shared {
		s.limits.Template = c.Template
	}
	_, run, _, err := assemble(context.Background(), c, s)
	if err != nil {
		panic(err)
	}
	panic(run(context.Background()))
}

// killInFlight is F, the most replies in doubt after one kill.
const killInFlight = 8

// spawn starts a sender process.
func (w *world) spawn(change ...func(*childWorld)) *exec.Cmd {
	w.t.Helper()
	c := w.child()
	for _, f := range change {
		f(&c)
	}
	b, err := json.Marshal(c)
	require.NoError(w.t, err)
	self, err := os.Executable()
	require.NoError(w.t, err)
	cmd := exec.CommandContext(context.Background(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	cmd.Stderr = os.Stderr
	require.NoError(w.t, cmd.Start())
	return cmd
}

// G7, G8: the sender is killed by WeChat itself at the moment a request has
// been read and carried out, and not answered.
func TestKilledInTheMiddleOfRequests(t *testing.T) {
	t.Parallel()
	const kills, each = 3, 60
	w := newWorld(t)
	var mu sync.Mutex
	var running *exec.Cmd
	var sinceStart, killed atomic.Int64
	w.onArrival(func(e wechatsim.Entry) {
		if e.What != wechatsim.PathCustomSend && e.What != wechatsim.PathTemplateSend {
			return
		}
		if sinceStart.Add(1) == 20 && killed.Load() < kills {
			mu.Lock()
			defer mu.Unlock()
			_ = running.Process.Kill() // SIGKILL; Wait below reports it
		}
	})
	pushes, replies := map[string]bool{}, map[string]string{}
	for i := range each {
		pushes[w.push(fmt.Sprintf("push %02d", i), func(p *wire.Push) { p.OpenID = w.followers[i%20] })] = true
		text := fmt.Sprintf("reply %02d", i)
		replies[w.reply(text, func(r *wire.Reply) { r.OpenID = w.followers[i%20] })] = text
	}
	for killed.Load() < kills {
		sinceStart.Store(0)
		mu.Lock()
		running = w.spawn()
		mu.Unlock()
		_ = running.Wait()
		require.False(t, running.ProcessState.Success(), "the child must have been killed")
		require.GreaterOrEqual(t, sinceStart.Load(), int64(20), "work must have been in flight")
		killed.Add(1)
	}
	w.start() // one more that lives

	for id := range pushes {
		require.Equal(t, wire.Accepted, w.outcome(id).State)
	}
	seen := map[string]int{}
	raw := 0
	for _, e := range w.arrivals(wechatsim.PathTemplateSend) {
		raw++
		require.True(t, pushes[e.ClientMsgID], "G29: nothing is invented")
		if e.Visible {
			seen[e.ClientMsgID]++
		}
	}
	require.Len(t, seen, each)
	for id, n := range seen {
		require.Equal(t, 1, n, "push %s was seen %d times", id, n)
	}
	texts := map[string]int{}
	for _, e := range w.arrivals(wechatsim.PathCustomSend) {
		if e.Visible {
			texts[e.Text]++
		}
	}
	doubled := 0
	for id, text := range replies {
		got := w.outcome(id)
		require.Equal(t, wire.Accepted, got.State)
		require.Positive(t, texts[text], "%s is lost", text)
		if texts[text] > 1 {
			doubled++
			require.True(t, got.PossibleDuplicate, "%s came %d times and is not flagged", text, texts[text])
		}
	}
	require.LessOrEqual(t, doubled, kills*killInFlight)
	t.Logf("%d kills, %d template requests for %d pushes, %d replies doubled", kills, raw, each, doubled)
	require.Positive(t, raw-each+doubled, "no kill has left anything in doubt: it missed its moment")
}
