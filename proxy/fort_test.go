package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/proxy"
)

// fort is a door that is attacked (reliability.md 4a to 4c): it listens, its
// clock stands where the test says, and what it counts can be read.
type fort struct {
	*world
	reg *prometheus.Registry
	now *atomic.Int64 // seconds
}

const fortTime = 1893456000

func newFort(t *testing.T, mode wechat.Mode, change ...func(*proxy.Config, *proxy.Account)) *fort {
	t.Helper()
	cache, err := redismem.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(cache.Close)
	return newFortAt(t, cache, mode, change...)
}

// newFortAt is one more node beside others on the same Redis.
func newFortAt(t *testing.T, cache *redismem.Server, mode wechat.Mode, change ...func(*proxy.Config, *proxy.Account)) *fort {
	t.Helper()
	f := &fort{world: &world{t: t, q: &queue{}, redis: cache, mode: mode}, reg: prometheus.NewRegistry(), now: &atomic.Int64{}}
	f.now.Store(fortTime)
	c, err := redis.Open(redis.Config{Mode: "single", Addrs: []string{cache.Addr()}}, nopLog)
	require.NoError(t, err)
	cfg, a := proxy.DefaultConfig(), account(mode)
	cfg.HTTP.Addr = "127.0.0.1:0"
	a.Credentials.Freshness = 300 * time.Second
	for _, ch := range change {
		ch(&cfg, &a)
	}
	f.p, err = proxy.New(cfg, one(a), proxy.Deps{
		Topics: wire.Topics{Prefix: "tidegate"}, Publisher: f.q, Claims: dedupe.New(c, dedupe.Options{Budget: time.Second}),
		Log: nopLog, Registry: f.reg, Now: func() time.Time { return time.Unix(f.now.Load(), 0) },
	})
	require.NoError(t, err)
	f.h = f.p.Handler()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		_ = c.Close()
	})
	return f
}

// signed is the query of a delivery with a valid signature. Each has a nonce of
// its own.
func (f *fort) signed() url.Values {
	_, node, _ := net.SplitHostPort(f.p.Addr())
	ts, nonce := strconv.FormatInt(f.now.Load(), 10), node+"x"+strconv.FormatInt(f.n.Add(1), 10)
	return url.Values{"timestamp": {ts}, "nonce": {nonce}, "signature": {wechat.Signature(token, ts, nonce)}, "openid": {openid}}
}

// sealed is a whole delivery in safe mode around cipher text that is given: all
// its signatures are good.
func (f *fort) sealed(cipher string) (url.Values, string) {
	v := f.signed()
	v.Set("encrypt_type", "aes")
	v.Set("msg_signature", wechat.Signature(token, v.Get("timestamp"), v.Get("nonce"), cipher))
	return v, "<xml><ToUserName><![CDATA[" + ghID + "]]></ToUserName><Encrypt><![CDATA[" + cipher + "]]></Encrypt></xml>"
}

// delivery is what WeChat would send of a document in the fort's mode.
func (f *fort) delivery(plain string) (url.Values, string) {
	if f.mode == wechat.ModePlain {
		return f.signed(), plain
	}
	return f.sealed(encrypt(f.t, appID, plain, f.n.Add(1)))
}

// count is how many records the queue took, of every topic.
func (q *queue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.records)
}

// answer is what came back.
type answer struct {
	status int
	body   string
	header http.Header
}

// post sends a body over a connection of its own.
func (f *fort) post(query, body string) answer {
	f.t.Helper()
	return f.raw(rawPost("/wx/card?"+query, body))
}

func (f *fort) deliver(plain string) answer {
	f.t.Helper()
	v, body := f.delivery(plain)
	return f.post(v.Encode(), body)
}

func rawPost(target, body string, headers ...string) string {
	return "POST " + target + " HTTP/1.1\r\nHost: gate.example\r\nContent-Type: text/xml\r\n" + strings.Join(headers, "") +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// raw writes bytes to the door's port and reads one answer. A connection that
// ends without one gives status 0.
func (f *fort) raw(text string) answer {
	f.t.Helper()
	c, err := net.Dial("tcp", f.p.Addr())
	require.NoError(f.t, err)
	defer c.Close()
	require.NoError(f.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, _ = io.WriteString(c, text) // the door may have answered and closed before it read all
	return readAnswer(c, text)
}

func readAnswer(r io.Reader, request string) answer {
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(r), &http.Request{Method: method})
	if err != nil {
		return answer{}
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return answer{res.StatusCode, string(b), res.Header}
}

// requireRefused runs an attack and holds what every refusal has in common:
// nothing enqueued, no key in Redis, one count under the reason, no word about
// why.
func (f *fort) requireRefused(status int, reason string, attack func() answer) {
	f.t.Helper()
	records, keys, before := f.q.count(), f.keys(), f.refused()
	got := attack()
	require.Equal(f.t, status, got.status, got.body)
	require.NotContains(f.t, got.body, wechat.Success)
	require.Equal(f.t, records, f.q.count(), "nothing may be enqueued")
	require.Equal(f.t, keys, f.keys(), "no key in Redis")
	require.Eventually(f.t, func() bool { return f.refused()[reason] > before[reason] }, 10*time.Second, time.Millisecond, "counted as %s: %v", reason, f.refused())
	after := f.refused()
	for r, n := range after {
		want := before[r]
		if r == reason {
			want++
		}
		require.Equal(f.t, want, n, "reason %s: %v", r, after)
	}
	if status == http.StatusForbidden {
		require.Equal(f.t, "refused\n", got.body, "one text for every refusal")
	}
}

// requireTaken holds that the door is as before: what is genuine is taken.
func (f *fort) requireTaken(got answer) {
	f.t.Helper()
	require.Equal(f.t, 200, got.status, got.body)
	require.Equal(f.t, wechat.Success, got.body)
}

// refused gives the refusals by reason.
func (f *fort) refused() map[string]float64 {
	out := map[string]float64{}
	f.each("tidegate_proxy_refused_total", func(labels map[string]string, n float64) { out[labels["reason"]] += n })
	return out
}

// each gives what is counted under a name.
func (f *fort) each(name string, got func(labels map[string]string, n float64)) {
	f.t.Helper()
	all, err := f.reg.Gather()
	require.NoError(f.t, err)
	for _, family := range all {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			got(labels, m.GetCounter().GetValue())
		}
	}
}

// keys asks Redis itself how many keys it has.
func (f *fort) keys() int {
	c, err := net.Dial("tcp", f.redis.Addr())
	require.NoError(f.t, err)
	defer c.Close()
	_, err = io.WriteString(c, "*1\r\n$6\r\nDBSIZE\r\n")
	require.NoError(f.t, err)
	line, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(f.t, err)
	var n int
	_, err = fmt.Sscanf(line, ":%d", &n)
	require.NoError(f.t, err, line)
	return n
}

// bait listens and tells whether anybody came.
func bait(t *testing.T) (addr string, visits func() int) {
	t.Helper()
	var n atomic.Int32
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String(), func() int { return int(n.Load()) }
}
