package alarm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// got is one request that a receiver saw.
type got struct {
	query  map[string][]string
	header http.Header
	body   []byte
}

func (g got) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, json.Unmarshal(g.body, &m), "%s", g.body)
	return m
}

// receiver is a webhook's other end. answer decides what the n-th request, from
// 1, is told; nil takes everything.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	all    []got
	came   chan struct{}
	answer func(n int, w http.ResponseWriter)
}

func startReceiver(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{answer: answer, came: make(chan struct{}, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.all = append(r.all, got{q.URL.Query(), q.Header, body})
		n := len(r.all)
		r.mu.Unlock()
		if r.answer != nil {
			r.answer(n, w)
		}
		r.came <- struct{}{}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) seen() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]got(nil), r.all...)
}

// await waits until n requests came.
func (r *receiver) await(t *testing.T, n int) []got {
	t.Helper()
	for {
		if all := r.seen(); len(all) >= n {
			return all
		}
		select {
		case <-r.came:
		case <-time.After(10 * time.Second):
			require.FailNow(t, "the receiver was not told", "%d of %d requests", len(r.seen()), n)
		}
	}
}

// statuses are the words of generic messages in their order.
func (r *receiver) statuses(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, g := range r.seen() {
		m := g.json(t)
		s := fmt.Sprint(m["status"])
		if m["reminder"] == true {
			s = "reminder"
		}
		out = append(out, s)
	}
	return out
}

func hook(name, url string) WebhookConfig {
	return WebhookConfig{Name: name, URL: url, Allow: []string{"127.0.0.1"}}
}

func config(ws ...WebhookConfig) Config {
	c := DefaultConfig()
	c.Webhooks = ws
	return c
}

func options(node string) HeraldOptions {
	return HeraldOptions{Node: node, Log: zap.NewNop(), Registry: prometheus.NewRegistry()}
}

// running starts a herald whose pauses are short, with a board in front.
func running(t *testing.T, c Config, o HeraldOptions) (*Board, *Herald) {
	t.Helper()
	h, err := newHerald(c, o)
	require.NoError(t, err)
	for _, w := range h.webhooks {
		w.pause = time.Millisecond
	}
	h.start()
	t.Cleanup(func() { require.NoError(t, h.Stop(t.Context())) })
	return NewBoard(zap.NewNop(), nil, o.Now, h), h
}

// redisAt opens clients of one deployment that no other test shares.
func redisAt(t *testing.T) (engine string, open func(addr string) *redis.Client) {
	t.Helper()
	engine = os.Getenv("TIDEGATE_TEST_REDIS")
	if engine == "" {
		s, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(s.Close)
		engine = s.Addr()
	}
	prefix := fmt.Sprintf("test:alarm:%d", time.Now().UnixNano())
	return engine, func(addr string) *redis.Client {
		cfg := redis.DefaultConfig()
		cfg.Addrs, cfg.Prefix = []string{addr}, prefix
		c, err := redis.Open(cfg, zap.NewNop())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
}

var faulty = Alarm{Name: "queue_faulty", Subject: "bank callbacks/3", Severity: Critical, Text: "no progress for 30 s at depth 12,000; look at the robots", TextZH: "30 秒无进展，积压 12000 条"}
