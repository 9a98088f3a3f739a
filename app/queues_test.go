package app

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/proxy/queues"
)

// opsOfQueues is an operations listener with a watch over a real queue that
// holds seven callbacks.
func opsOfQueues(t *testing.T, keys ...telemetry.OpsKey) string {
	t.Helper()
	b, err := kafkamem.Start(kafkamem.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{b.Addr()}
	admin, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	names := queues.Names{Topics: wire.Topics{Prefix: "tidegate"}, Robot: "tidegate.robot", Receipts: "tidegate.receipts"}
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: names.Topics.Callbacks("bank"), Partitions: 2, Replication: 1}})
	require.NoError(t, err)
	pub, err := kafka.NewProducer(cfg, kafka.ProducerOptions{MaxBlock: 20 * time.Second}, zap.NewNop(), nil)
	require.NoError(t, err)
	for range 7 {
		_, err := pub.Publish(t.Context(), kafka.Record{Topic: names.Topics.Callbacks("bank"), Key: []byte("k"), Value: []byte("v")})
		require.NoError(t, err)
	}
	require.NoError(t, pub.Close(t.Context()))
	w, err := queues.New(queues.DefaultConfig(), []string{"bank"}, queues.Deps{Admin: admin, Names: names, Log: zap.NewNop()})
	require.NoError(t, err)
	require.NoError(t, w.Check(t.Context()))
	ops := telemetry.NewOps(prometheus.NewRegistry())
	require.NoError(t, ops.SetKeys(keys))
	ops.Handle("GET /ops/v1/queues", w)
	s := httptest.NewServer(ops)
	t.Cleanup(s.Close)
	return s.URL
}

func TestQueuesPrintsOneTable(t *testing.T) {
	url := opsOfQueues(t)
	var out bytes.Buffer
	require.NoError(t, Queues(t.Context(), QueuesOptions{Ops: url, Out: &out}))
	require.Regexp(t, `(?m)^callbacks +bank +all +7 `, out.String())
	require.NotContains(t, out.String(), "\x1b")

	out.Reset()
	require.NoError(t, Queues(t.Context(), QueuesOptions{Ops: strings.TrimPrefix(url, "http://"), Account: "bank", JSON: true, Out: &out}))
	var v queues.View
	require.NoError(t, json.Unmarshal(out.Bytes(), &v))
	require.Len(t, v.Queues, 9)
}

// A slip in the account's name must not look like an empty queue.
func TestQueuesKnowsItsAccounts(t *testing.T) {
	url := opsOfQueues(t)
	for _, o := range []QueuesOptions{{}, {JSON: true}, {Watch: true}} {
		var out bytes.Buffer
		o.Ops, o.Account, o.Out = url, "nope", &out
		err := Queues(t.Context(), o)
		require.ErrorIs(t, err, ErrUsage, "exit code 2")
		require.ErrorContains(t, err, "--account nope: "+strings.TrimPrefix(url, "http://")+" has no such account; it watches bank")
		require.Empty(t, out.String())
	}
}

// until is a writer that calls stop once a number of tables were drawn.
type until struct {
	mu     sync.Mutex
	text   bytes.Buffer
	tables int
	stop   func()
}

func (u *until) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tables--; u.tables == 0 {
		u.stop()
	}
	return u.text.Write(p)
}

func TestQueuesWatches(t *testing.T) {
	url := opsOfQueues(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &until{tables: 3, stop: cancel}
	begun := time.Now()
	require.NoError(t, Queues(ctx, QueuesOptions{Ops: url, Watch: true, Out: out}))
	require.Greater(t, time.Since(begun), queuesEvery)
	require.Equal(t, 3, strings.Count(out.text.String(), "queues of "))
	require.NotContains(t, out.text.String(), "\x1b[H", "a file is not redrawn")
}

func TestQueuesSaysWhatIsWrong(t *testing.T) {
	key, hash := telemetry.NewOpsKey()
	url := opsOfQueues(t, telemetry.OpsKey{Name: "desk", SHA256: hash, Scopes: []string{"read"}})
	var out bytes.Buffer
	require.Error(t, Queues(t.Context(), QueuesOptions{Ops: url, Out: &out}), "the listener wants a key")
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(key+"\n"), 0o600))
	require.NoError(t, Queues(t.Context(), QueuesOptions{Ops: url, Key: "file:" + file, Out: &out}))

	err := Queues(t.Context(), QueuesOptions{Ops: "127.0.0.1:1", Watch: true, Out: &out})
	require.ErrorContains(t, err, "is the role running, and is this its ops.addr?")
	require.ErrorIs(t, Queues(t.Context(), QueuesOptions{Ops: "ftp://x", Out: &out}), ErrUsage)
}

func TestQueuesFindsTheListener(t *testing.T) {
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	require.NoError(t, os.WriteFile(file, []byte("ops:\n  addr: 0.0.0.0:9177\n"), 0o600))
	for want, o := range map[string]QueuesOptions{
		"http://127.0.0.1:9100": {},
		"http://127.0.0.1:9177": {Source: Source{File: file}},
		"http://[::1]:9200":     {Source: Source{Set: map[string]string{"ops.addr": "[::1]:9200"}}},
		"10.0.0.9:9100":         {Ops: "10.0.0.9:9100", Source: Source{File: file}},
	} {
		got, err := o.listener()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, "127.0.0.1:9100", reachable(":9100"))
	require.Equal(t, "127.0.0.1:9100", reachable("[::]:9100"))
}
