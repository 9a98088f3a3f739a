package queues_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama" //nolint:depguard // what operators do to offsets and records is no business of our adapter
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/wire"
	"tidegate/proxy/queues"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 4

// world is a watch over real topics, on the embedded broker or on
// TIDEGATE_TEST_KAFKA. Its clock moves only with check, so a window passes in no
// time; consumers commit in real time.
type world struct {
	t      *testing.T
	cfg    kafka.Config
	broker *kafkamem.Broker // nil on a real cluster
	opt    kafkamem.Options
	names  queues.Names
	admin  *kafka.Admin
	pub    *kafka.Producer
	board  *alarm.Board
	watch  *queues.Watch
	spool  queues.Spooled

	mu    sync.Mutex
	now   time.Time
	heard map[string]int // "fires queue_depth callbacks bank"
}

var limits = queues.Limits{WarnDepth: 50, MaxDepth: 100, WarnAge: time.Minute}

func newWorld(t *testing.T, change ...func(*queues.Config)) *world {
	t.Helper()
	w := &world{t: t, cfg: kafka.DefaultConfig(), now: time.Now(), heard: map[string]int{}}
	if addr := os.Getenv("TIDEGATE_TEST_KAFKA"); addr != "" {
		w.cfg.Brokers = []string{addr}
	} else {
		w.start()
	}
	prefix := "tgq-" + strings.ToLower(rand.Text()[:10])
	w.names = queues.Names{Topics: wire.Topics{Prefix: prefix}, Robot: prefix + ".robot", Receipts: prefix + ".receipts"}
	w.admin = w.newAdmin()
	w.makeTopics("bank")
	var err error
	w.pub, err = kafka.NewProducer(w.cfg, kafka.ProducerOptions{MaxBlock: 20 * time.Second}, zap.NewNop(), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = w.pub.Close(ctx) // an error means that the broker was taken away
	})
	w.board = alarm.NewBoard(zap.NewNop(), nil, w.clock, w)
	cfg := queues.DefaultConfig()
	cfg.Window, cfg.Limits = 10*time.Second, limits
	for _, ch := range change {
		ch(&cfg)
	}
	w.watch = w.newWatch(cfg, w.board)
	return w
}

func (w *world) start() {
	if w.opt.Dir == "" {
		w.opt.Dir = w.t.TempDir()
	}
	b, err := kafkamem.Start(w.opt)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, b.Close()) })
	w.broker, w.cfg.Brokers = b, []string{b.Addr()}
}

func (w *world) newAdmin() *kafka.Admin {
	a, err := kafka.NewAdmin(w.cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, a.Close()) })
	return a
}

func (w *world) newWatch(cfg queues.Config, board *alarm.Board) *queues.Watch {
	watch, err := queues.New(cfg, []string{"bank"}, queues.Deps{
		Admin: w.newAdmin(), Names: w.names, Alarms: board, Log: zap.NewNop(), Now: w.clock, Threshold: 10 * time.Second,
		Spool: func() queues.Spooled { return w.spool },
	})
	require.NoError(w.t, err)
	return watch
}

func (w *world) makeTopics(account string) {
	specs := []kafka.TopicSpec{{Name: w.names.Topics.Callbacks(account), Partitions: partitions, Replication: 1}}
	_, err := w.admin.EnsureTopics(w.t.Context(), specs)
	require.NoError(w.t, err)
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// Tell is alarm.Sink.
func (w *world) Tell(t alarm.Transition) {
	what := "resolves "
	if t.Firing {
		what = "fires "
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard[what+t.Name+" "+t.Subject]++
}

// told gives and forgets what was heard.
func (w *world) told() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.heard
	w.heard = map[string]int{}
	return h
}

// check lets polls of 2 s pass.
func (w *world) check(n int) {
	w.t.Helper()
	for range n {
		w.pass(2 * time.Second)
		require.NoError(w.t, w.watch.Check(w.t.Context()))
	}
}

// queue asks the endpoint.
func (w *world) queue(name, account string) queues.QueueView {
	w.t.Helper()
	for _, q := range w.ask("").Queues {
		if q.Queue == name && q.Account == account {
			return q
		}
	}
	require.FailNow(w.t, "no queue "+name+" of "+account)
	panic("not reached")
}

func (w *world) ask(query string) queues.View {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.watch.ServeHTTP(rec, httptest.NewRequest("GET", "/ops/v1/queues"+query, nil))
	require.Equal(w.t, 200, rec.Code)
	var v queues.View
	d := json.NewDecoder(rec.Body)
	d.DisallowUnknownFields()
	require.NoError(w.t, d.Decode(&v))
	return v
}

func (w *world) callbacks(partition int) queues.PartitionView {
	w.t.Helper()
	q := w.queue("callbacks", "bank")
	require.Len(w.t, q.Partitions, partitions)
	return q.Partitions[partition]
}

func keyOf(partition int32) []byte {
	for i := 0; ; i++ {
		if k := []byte(fmt.Sprintf("user-%d", i)); kafka.Partition(k, partitions) == partition {
			return k
		}
	}
}

// publish puts records into a partition.
func (w *world) publish(partition int32, n int, at ...time.Time) {
	w.t.Helper()
	results := make(chan error, n)
	for i := range n {
		r := kafka.Record{Topic: w.names.Topics.Callbacks("bank"), Key: keyOf(partition), Value: []byte("v")}
		if len(at) > 0 {
			r.Timestamp = at[0].Add(time.Duration(i) * time.Millisecond)
		}
		go func() { _, err := w.pub.Publish(w.t.Context(), r); results <- err }()
	}
	for range n {
		require.NoError(w.t, <-results)
	}
}

// robot consumes the callbacks; what block names waits until it is let go.
type robot struct {
	w     *world
	stop  func()
	mu    sync.Mutex
	gates map[int32]chan struct{}
}

func (w *world) robot() *robot {
	w.t.Helper()
	r := &robot{w: w, gates: map[int32]chan struct{}{}}
	g, err := kafka.NewGroup(w.cfg, kafka.GroupOptions{
		Group: wire.RobotGroup(w.names.Robot, "bank"), Topics: []string{w.names.Topics.Callbacks("bank")},
		DrainTimeout: time.Second,
		Handler: func(ctx context.Context, rec kafka.Record) error {
			r.mu.Lock()
			gate := r.gates[rec.Partition]
			r.mu.Unlock()
			if gate == nil {
				return nil
			}
			select {
			case <-gate:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}, zap.NewNop(), nil)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	r.stop = sync.OnceFunc(func() { cancel(); require.NoError(w.t, <-done) })
	w.t.Cleanup(r.stop)
	return r
}

func (r *robot) block(partitions ...int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions {
		r.gates[p] = make(chan struct{})
	}
}

func (r *robot) letGo() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, g := range r.gates {
		close(g)
		delete(r.gates, p)
	}
}

// caughtUp waits until everything is committed.
func (w *world) caughtUp() {
	w.t.Helper()
	w.await(func(lags []kafka.Lag) bool {
		for _, l := range lags {
			if l.Lag > 0 {
				return false
			}
		}
		return true
	})
}

func (w *world) await(ok func([]kafka.Lag) bool) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		lags, err := w.admin.Lag(w.t.Context(), wire.RobotGroup(w.names.Robot, "bank"), []string{w.names.Topics.Callbacks("bank")})
		return err == nil && len(lags) == partitions && ok(lags)
	}, 40*time.Second, 20*time.Millisecond)
}

// held waits until members of the group hold as many partitions.
func (w *world) held(n int) {
	w.t.Helper()
	group, topic := wire.RobotGroup(w.names.Robot, "bank"), w.names.Topics.Callbacks("bank")
	require.Eventually(w.t, func() bool {
		o, err := w.admin.Owners(w.t.Context(), []string{group})
		return err == nil && len(o[group][topic]) == n
	}, 40*time.Second, 20*time.Millisecond)
}

// reset sets the robots' position by hand, as an operator does.
func (w *world) reset(partition int32, offset int64) {
	w.t.Helper()
	at := map[string]map[int32]sarama.OffsetAndMetadata{w.names.Topics.Callbacks("bank"): {partition: {Offset: offset, LeaderEpoch: -1}}}
	w.operate(func(a sarama.ClusterAdmin) error {
		_, err := a.AlterConsumerGroupOffsets(wire.RobotGroup(w.names.Robot, "bank"), at, nil)
		return err
	})
}

// deleteBefore is what retention does.
func (w *world) deleteBefore(partition int32, offset int64) {
	w.t.Helper()
	w.operate(func(a sarama.ClusterAdmin) error {
		return a.DeleteRecords(w.names.Topics.Callbacks("bank"), map[int32]int64{partition: offset})
	})
}

func (w *world) operate(do func(sarama.ClusterAdmin) error) {
	w.t.Helper()
	a, err := sarama.NewClusterAdmin(w.cfg.Brokers, sarama.NewConfig())
	require.NoError(w.t, err)
	require.NoError(w.t, do(a))
	require.NoError(w.t, a.Close())
}
