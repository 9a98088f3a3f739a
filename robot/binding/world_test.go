package binding_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/robot/backend"
	"tidegate/robot/binding"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account = "card"
	openid  = "oUser-1"
	secret  = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
)

// bank is the system that knows who is bound to whom.
type bank struct {
	*httptest.Server
	mu    sync.Mutex
	users map[string]string // by account/openid
	gets  int
	keys  []string // Idempotency-Key of writes
	fail  int      // status of every answer, 0 for a healthy bank
	hold  chan struct{}
	held  chan struct{}
}

func newBank(t *testing.T) *bank {
	b := &bank{users: map[string]string{}, held: make(chan struct{}, 100)}
	m := http.NewServeMux()
	m.HandleFunc("/v1/bindings/{account}/{openid}", b.one)
	m.HandleFunc("GET /v1/users/{user}/bindings/{account}", b.of)
	b.Server = httptest.NewServer(m)
	t.Cleanup(b.Close)
	return b
}

func (b *bank) one(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	at := r.PathValue("account") + "/" + r.PathValue("openid")
	user, bound := b.users[at]
	fail, hold := b.fail, b.hold
	switch {
	case fail != 0:
	case r.Method == http.MethodGet:
		b.gets++
	case r.Method == http.MethodPut:
		var body struct{ User string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		b.users[at], b.keys = body.User, append(b.keys, r.Header.Get("Idempotency-Key"))
		user, bound = body.User, true
	case r.Method == http.MethodDelete:
		delete(b.users, at)
		b.keys = append(b.keys, r.Header.Get("Idempotency-Key"))
	}
	b.mu.Unlock()
	if r.Method == http.MethodGet && hold != nil { // it has read, and its answer takes its time
		b.held <- struct{}{}
		<-hold
	}
	switch {
	case fail != 0:
		w.WriteHeader(fail)
	case !bound:
		w.WriteHeader(http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"user": user, "since": "2026"})
	}
}

func (b *bank) of(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := []string{}
	for at, user := range b.users {
		if o, ok := strings.CutPrefix(at, r.PathValue("account")+"/"); ok && user == r.PathValue("user") {
			found = append(found, o)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"openids": found})
}

func (b *bank) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bank) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gets
}

// world is a bank, a Redis and the books of several nodes.
type world struct {
	t      *testing.T
	bank   *bank
	addr   string
	prefix string
	server *redismem.Server
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, bank: newBank(t), addr: os.Getenv("TIDEGATE_TEST_REDIS"), prefix: fmt.Sprintf("test:binding:%d", time.Now().UnixNano())}
	if w.addr == "" {
		s, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(s.Close)
		w.addr, w.server = s.Addr(), s
	}
	return w
}

func (w *world) redis() *redis.Client {
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout, cfg.Prefix = []string{w.addr}, time.Second, w.prefix
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) node(change ...func(*binding.Config)) *binding.Book {
	w.t.Helper()
	return w.nodeAt(w.redis(), change...)
}

func (w *world) nodeAt(c *redis.Client, change ...func(*binding.Config)) *binding.Book {
	w.t.Helper()
	b := backend.Config{Name: "bank", BaseURL: w.bank.URL, Attempts: 1, Rate: 1e5, Burst: 1000, Concurrency: 100}
	client, err := backend.New(b, ratelimit.New(b.Limit()), backend.NewMetrics(prometheus.NewRegistry()))
	require.NoError(w.t, err)
	cfg := binding.DefaultConfig()
	cfg.Backend, cfg.Key = "bank", secret
	for _, f := range change {
		f(&cfg)
	}
	book, err := binding.New(cfg, client, c, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { book.Close(); client.Close() })
	return book
}

func lookup(t *testing.T, b *binding.Book) string {
	t.Helper()
	user, err := b.Lookup(context.Background(), account, openid)
	require.NoError(t, err)
	return user
}

// everything is all that lies in Redis under a prefix, names and values.
var everything = redis.NewScript(`
local out = {}
for _, k in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  out[#out+1] = k
  if redis.call('TYPE', k)['ok'] == 'hash' then
    for _, v in ipairs(redis.call('HGETALL', k)) do out[#out+1] = v end
  elseif redis.call('TYPE', k)['ok'] == 'string' then
    out[#out+1] = redis.call('GET', k)
  end
end
return table.concat(out, '\n')`)

func (w *world) dump() string {
	w.t.Helper()
	all, err := everything.Run(context.Background(), w.redis(), []string{"x"}, w.prefix)
	require.NoError(w.t, err)
	return fmt.Sprint(all)
}
