package robot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/backend"
	"tidegate/robot/engine"
)

// life is what a victim, a robot in a process of its own, is told: the test
// binary runs itself with it in the environment.
type life struct {
	Broker, Prefix, Group, Redis string
	Die                          string // what a callback with the text "poison" does
	Core                         string // a business system; "" has none
}

const echoRule = "{name: echo, match: {text: {any: true}}, reply: {text: '{{ .Content }}'}}"

const victimEnv = "TIDEGATE_TEST_VICTIM"

// deadly is an engine that works for a moment, and in which one text kills the
// process in a way that no recover stops.
type deadly struct {
	robot.Engine
	die string
}

func (d deadly) Decide(c *wire.Callback) (engine.Decision, error) {
	<-time.After(20 * time.Millisecond) // so that others are in hand
	switch c.Content {
	case "panic":
		panic("inside of the robot's recover")
	case "poison":
	default:
		return d.Engine.Decide(c)
	}
	switch d.die {
	case "exit":
		os.Exit(3)
	case "panic":
		go func() { panic("outside of every recover") }()
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	select {} // hang, until the watchdog ends the process
}

// victim is the robot's process.
func victim(text string) int {
	var l life
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := zap.NewNop()
	k, r, cfg := kafka.DefaultConfig(), redis.DefaultConfig(), robot.DefaultConfig()
	k.Brokers, r.Addrs, r.Prefix, cfg.Group = []string{l.Broker}, []string{l.Redis}, l.Prefix, l.Group
	cfg.SessionTimeout, cfg.StalledAfter, cfg.GiveUpAfter = 2*time.Second, time.Second, time.Second
	client, err := redis.Open(r, log)
	must(err)
	defer func() { _ = client.Close() }()
	producer, err := kafka.NewProducer(k, kafka.ProducerOptions{}, log, prometheus.NewRegistry())
	must(err)
	text = "version: 1\nfallback: busy\nrules: [" + echoRule + "]"
	if l.Core != "" {
		cfg.MaxAge, cfg.StalledAfter, cfg.GiveUpAfter = 5*time.Second, 30*time.Second, 30*time.Second
		cfg.Backends = []backend.Config{{Name: "core", BaseURL: l.Core, Attempts: 1, Timeout: 20 * time.Second, Rate: 1e5, Burst: 1000, Concurrency: 1000}}
		text = "version: 1\nrules: [{name: ask, match: {text: {prefix: 'ask '}}, call: {backend: core, path: '/{{ .Content }}'}, reply: {text: 'done'}}, " + echoRule + "]"
	}
	rules, err := engine.Parse("rules.yaml", []byte(text), engine.Known{})
	must(err)
	room, err := robot.New(cfg, []robot.Account{account("a")}, robot.Deps{
		Kafka: k, Topics: wire.Topics{Prefix: l.Prefix}, Publisher: producer, Redis: client, Rules: deadly{rules, l.Die},
		Log: log, Hasher: telemetry.NewHasher([]byte("k")),
	})
	must(err)
	if err := room.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	late, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	must(producer.Close(late))
	return 0
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// tape keeps what a topic holds, in the order in which it is read.
type tape struct {
	mu  sync.Mutex
	all []kafka.Record
}

func (p *tape) records() []kafka.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// tape reads a topic from its beginning until the test ends.
func (w *world) tape(topic string) *tape {
	p := &tape{}
	g, err := kafka.NewGroup(w.kafka, kafka.GroupOptions{
		Group: w.group + "." + topic, Topics: []string{topic},
		Handler: func(_ context.Context, r kafka.Record) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.all = append(p.all, r)
			return nil
		},
	}, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); require.NoError(w.t, <-done) })
	return p
}

// lettersOf decodes a tape, without those that are there twice.
func lettersOf[T any, P interface {
	*T
	wire.Letter
}](t *testing.T, p *tape) (out []*T) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range p.records() {
		l, err := wire.Decode[T, P](r.Value, r.Headers)
		require.NoError(t, err)
		if id := P(l).LetterID(); !seen[id] {
			seen[id] = true
			out = append(out, l)
		}
	}
	return out
}

// TestKillerIsFound (T18, G15): one of 200 callbacks kills every process that
// works it, with 64 others in hand, each time in another way. After three deaths
// it is the only dead letter; everybody is answered, in order, and the user of
// the killer is told the fallback text.
func TestKillerIsFound(t *testing.T) {
	t.Parallel()                             // it waits most of its time
	ways := []string{"exit", "hang", "hang"} // who hangs leaves by itself: no session has to end
	if os.Getenv("TIDEGATE_TEST_KILLERS") == "all" {
		for _, way := range []string{"exit", "panic", "kill", "hang"} {
			t.Run(way, func(t *testing.T) { killerIsFound(t, []string{way, way, way}) })
		}
		ways = []string{"panic", "hang", "kill"}
	}
	killerIsFound(t, ways)
}

// life is a first one in this world.
func (w *world) life() life {
	l := life{Broker: w.kafka.Brokers[0], Prefix: w.topics.Prefix, Group: w.group, Redis: os.Getenv("TIDEGATE_TEST_REDIS")}
	if l.Redis == "" {
		s, err := redismem.Start("")
		require.NoError(w.t, err)
		w.t.Cleanup(s.Close)
		l.Redis = s.Addr()
	}
	return l
}

func killerIsFound(t *testing.T, ways []string) {
	const users, each = 100, 2
	w := newWorld(t, "a")
	l := w.life()
	var poison *wire.Callback
	for n := range each {
		for u := range users {
			c := callback("a", fmt.Sprintf("o%d", u), n, fmt.Sprintf("say %d", n))
			if u == 70 && n == 0 {
				c.Content, poison = "poison", c
			}
			w.send(c)
		}
	}
	receipts, replies, dead := w.tape(w.topics.Receipts()), w.tape(w.topics.Replies("a")), w.tape(w.topics.DeadLetters())
	settled := func() int { return len(lettersOf[wire.Receipt](t, receipts)) }

	deaths, codes := 0, []string{}
	began := time.Now()
	for settled() < users*each {
		require.LessOrEqual(t, deaths, len(ways), "it kills more than %d times", len(ways))
		l.Die = ways[min(deaths, len(ways)-1)]
		if code := w.live(l, func() bool { return settled() >= users*each }); code != 0 {
			deaths++
			codes = append(codes, fmt.Sprintf("%s (exit code %d)", l.Die, code))
		}
	}
	took := time.Since(began)
	require.Equal(t, len(ways), deaths, "%v", codes)
	letters := lettersOf[wire.DeadLetter](t, dead)
	require.Len(t, letters, 1)
	require.Equal(t, poison.ID, letters[0].ID)
	require.Contains(t, letters[0].Reason, "3 robots in a row died")
	answers := map[string][]string{}
	for _, r := range lettersOf[wire.Reply](t, replies) {
		answers[r.OpenID] = append(answers[r.OpenID], r.Content.Text)
	}
	for u := range users {
		want := []string{"say 0", "say 1"}
		if u == 70 {
			want[0] = "busy"
		}
		require.Equal(t, want, answers[fmt.Sprintf("o%d", u)])
	}
	for _, rc := range lettersOf[wire.Receipt](t, receipts) {
		require.Equal(t, rc.ID == poison.ID, rc.State == wire.Dead, rc.Reason)
	}
	t.Logf("CI: G15 one killer among %d callbacks, 64 workers: %d deaths: %s; dead letters 1, answered %d, out of order 0; all settled after %.1f s (sessions of 2 s)",
		users*each, deaths, strings.Join(codes, ", "), users*each-1, took.Seconds())
}

// live runs a victim until it dies, or until all is done and it is asked to
// stop; then its code is 0.
func (w *world) live(l life, over func() bool) int {
	w.t.Helper()
	text, err := json.Marshal(l)
	require.NoError(w.t, err)
	self, err := os.Executable()
	require.NoError(w.t, err)
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	var said strings.Builder
	cmd.Stderr = &said
	require.NoError(w.t, cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Kill() // does nothing when it has ended
		<-ended
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patient)
	for {
		select {
		case <-ended:
			return cmd.ProcessState.ExitCode()
		case <-deadline:
			require.FailNow(w.t, "neither dead nor done", said.String())
		case <-tick.C:
			if over() {
				require.NoError(w.t, cmd.Process.Signal(syscall.SIGTERM))
				<-ended
				require.Zero(w.t, cmd.ProcessState.ExitCode(), said.String())
				return 0
			}
		}
	}
}
