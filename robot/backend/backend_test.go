package backend_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidegate/pkg/fault"
	"tidegate/pkg/ratelimit"
	"tidegate/robot/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// system is a business system that a test scripts.
type system struct {
	*httptest.Server
	hits atomic.Int64
}

func serve(t *testing.T, h http.HandlerFunc) *system {
	t.Helper()
	s := &system{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		// Only once the body is read does the server notice that a caller left.
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func config(url string) backend.Config {
	c := backend.DefaultConfig()
	c.Name, c.BaseURL, c.Rate, c.Burst = "core", url, 1e5, 1000
	c.Timeout, c.BackoffMin, c.BackoffMax = 2*time.Second, time.Millisecond, 5*time.Millisecond
	return c
}

func client(t *testing.T, c backend.Config) (*backend.Client, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	cl, err := backend.New(c, ratelimit.New(ratelimit.Limit{Rate: c.Rate, Burst: c.Burst, Concurrency: c.Concurrency, StartFull: true}), backend.NewMetrics(reg))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl, reg
}

func post() backend.Request {
	return backend.Request{Method: "POST", Path: "/bill?openid=oSecret", Body: []byte(`{"a":1}`), Key: "25770000000000000000001", Trace: "00-0123-01"}
}

func TestCallSendsWhatWasAsked(t *testing.T) {
	var got *http.Request
	var body []byte
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain; charset=gbk")
		_, _ = io.WriteString(w, "\xEF\xBB\xBF {\"id\": 9007199254740993, \"f\": 1.5, \"big\": 123456789012345678901234567890, \"l\": [1, null, true]} \n")
	})
	c := config(s.URL + "/base/")
	c.Authorization, c.Headers = "Bearer s3cret", map[string]string{"X-Tenant": "a"}
	cl, _ := client(t, c)
	answer, err := cl.Call(t.Context(), post())
	require.NoError(t, err)
	require.Equal(t, map[string]any{"id": int64(9007199254740993), "f": 1.5, "big": json.Number("123456789012345678901234567890"), "l": []any{int64(1), nil, true}}, answer)
	require.Equal(t, "/base/bill?openid=oSecret", got.URL.String())
	require.Equal(t, `{"a":1}`, string(body))
	for name, want := range map[string]string{
		"Idempotency-Key": "25770000000000000000001", "Authorization": "Bearer s3cret", "X-Tenant": "a",
		"Content-Type": "application/json", "Traceparent": "00-0123-01", "Accept": "application/json", "Accept-Encoding": "",
	} {
		require.Equal(t, want, got.Header.Get(name), name)
	}
}

func TestEmptyAnswerIsNil(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	cl, _ := client(t, config(s.URL))
	answer, err := cl.Call(t.Context(), post())
	require.NoError(t, err)
	require.Nil(t, answer)
}

// TestAnswersThatAreFailures lists what a back end can answer, the kind it
// becomes, how often it is tried, and that no error tells secrets.
func TestAnswersThatAreFailures(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"secret":"oSecret"}`)
		}
	}
	raw := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	for name, c := range map[string]struct {
		h     http.HandlerFunc
		kind  fault.Kind
		tries int64
		text  string
	}{
		"500":        {status(500), fault.Ambiguous, 3, "status 500"},
		"503":        {status(503), fault.Unavailable, 3, "status 503"},
		"429":        {status(429), fault.Limited, 3, "status 429"},
		"501":        {status(501), fault.Ambiguous, 1, "status 501"},
		"400":        {status(400), fault.Final, 1, "status 400"},
		"401":        {status(401), fault.Denied, 1, "status 401"},
		"404":        {status(404), fault.NotFound, 1, "status 404"},
		"409":        {status(409), fault.Conflict, 1, "status 409"},
		"half JSON":  {raw(`{"secret":"oSecr`), fault.Final, 1, "no JSON"},
		"HTML":       {raw(`<html>oSecret</html>`), fault.Final, 1, "no JSON"},
		"two values": {raw(`{} {}`), fault.Final, 1, "no JSON"},
		"deep":       {raw(strings.Repeat("[", 100) + strings.Repeat("]", 100)), fault.Final, 1, "nested deeper"},
		"bottomless": {raw(strings.Repeat("[", 500_000)), fault.Final, 1, "no JSON"},
		"broke off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"a":`)
		}, fault.Ambiguous, 3, "broke off"},
		"hung up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, fault.Ambiguous, 3, "connection broke"},
		"gzip unasked": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "x")
		}, fault.Final, 1, "compressed"},
		"10,000 headers": {func(w http.ResponseWriter, _ *http.Request) {
			for range 10_000 {
				w.Header().Add("X-Header", "0123456789")
			}
		}, fault.Ambiguous, 3, "connection broke"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.h)
			cl, reg := client(t, config(s.URL))
			answer, err := cl.Call(t.Context(), post())
			require.Error(t, err)
			require.Nil(t, answer)
			require.Equal(t, c.kind, fault.KindOf(err), "%v", err)
			require.Equal(t, c.tries, s.hits.Load())
			require.ErrorContains(t, err, "call back end core")
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "oSecret")
			require.NotContains(t, err.Error(), "127.0.0.1")
			n, err := testutil.GatherAndCount(reg, "tidegate_backend_tries_total")
			require.NoError(t, err)
			require.Equal(t, 1, n)
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	inside := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"inside":true}`) })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inside.URL, http.StatusFound) })
	cl, _ := client(t, config(s.URL))
	_, err := cl.Call(t.Context(), post())
	require.ErrorContains(t, err, "redirects are not followed")
	require.Equal(t, int64(1), s.hits.Load())
	require.Zero(t, inside.hits.Load())
}

func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	c := config("http://backend.invalid")
	c.Attempts = 1
	cl, _ := client(t, c)
	_, err := cl.Call(t.Context(), post())
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Zero(t, proxy.hits.Load())
}

func TestHugeAnswerIsCut(t *testing.T) {
	var sent atomic.Int64
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		block := []byte(`"` + strings.Repeat("x", 1<<20) + `",`)
		for range 100 { // 100 MB
			n, err := w.Write(block)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	cl, _ := client(t, config(s.URL))
	_, err := cl.Call(t.Context(), post())
	require.ErrorContains(t, err, "larger than max_response")
	require.Equal(t, fault.Final, fault.KindOf(err))
	s.Close()
	require.Less(t, sent.Load(), int64(50<<20), "the rest must not have been read")
}

func TestSlowAnswersEndInTime(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"one byte at a time": func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_, _ = w.Write([]byte(" "))
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, h)
			c := config(s.URL)
			c.Timeout, c.Attempts = 100*time.Millisecond, 2
			cl, _ := client(t, c)
			began := time.Now()
			_, err := cl.Call(t.Context(), post())
			require.Equal(t, fault.Ambiguous, fault.KindOf(err), "%v", err)
			require.Equal(t, int64(2), s.hits.Load())
			require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
}

func TestRuleMayShortenTheTimeout(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := config(s.URL)
	c.Timeout, c.Attempts = 30*time.Second, 1
	cl, _ := client(t, c)
	r := post()
	r.Timeout = 50 * time.Millisecond
	_, err := cl.Call(t.Context(), r)
	require.ErrorContains(t, err, "no answer in time")
}

func TestCallerEndsTheCall(t *testing.T) {
	arrived := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { close(arrived); <-r.Context().Done() })
	cl, _ := client(t, config(s.URL))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err := cl.Call(ctx, post())
	require.Error(t, err)
	require.Equal(t, int64(1), s.hits.Load(), "a cancelled call is not tried again")
}

func TestRetrySucceedsWithTheSameKey(t *testing.T) {
	var mu sync.Mutex
	var keys, bodies []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(b))
		if len(keys) < 3 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, `"done"`)
	})
	cl, _ := client(t, config(s.URL))
	answer, err := cl.Call(t.Context(), post())
	require.NoError(t, err)
	require.Equal(t, "done", answer)
	key := post().Key
	require.Equal(t, []string{key, key, key}, keys)
	require.Equal(t, []string{`{"a":1}`, `{"a":1}`, `{"a":1}`}, bodies)
}

// TestKeyNotHonoured: where the back end forgets keys, what may have been done
// is not repeated, unless the method is idempotent or it certainly was not.
func TestKeyNotHonoured(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		h      http.HandlerFunc
		tries  int64
	}{
		"POST 500":     {"POST", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 1},
		"POST 503":     {"POST", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 3},
		"PUT 500":      {"PUT", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 3},
		"POST dropped": {"POST", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				require.NotEmpty(t, r.Header.Get("Idempotency-Key"), "the key is sent all the same")
				if r.URL.Path == "/warm" {
					return
				}
				c.h(w, r)
			})
			cfg := config(s.URL)
			cfg.IgnoresKey = true
			cl, _ := client(t, cfg)
			// A connection that was used before is the one on which net/http
			// would repeat requests by itself.
			_, err := cl.Call(t.Context(), backend.Request{Method: "POST", Path: "/warm", Key: "k"})
			require.NoError(t, err)
			r := post()
			r.Method = c.method
			_, err = cl.Call(t.Context(), r)
			require.Error(t, err)
			require.Equal(t, c.tries+1, s.hits.Load())
		})
	}
}

func TestPermitIsTakenBeforeEachTry(t *testing.T) {
	var now, most atomic.Int64
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	c := config(s.URL)
	c.Concurrency, c.Rate, c.Burst = 3, 200, 1
	cl, _ := client(t, c)
	began := time.Now()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { _, _ = cl.Call(t.Context(), post()) })
	}
	wg.Wait()
	require.Equal(t, int64(60), s.hits.Load(), "20 calls, three tries each")
	require.LessOrEqual(t, most.Load(), int64(3))
	require.GreaterOrEqual(t, time.Since(began), 59*5*time.Millisecond, "60 tries at 200 a second")
}

func TestNoPermitInTime(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	c := config(s.URL)
	c.Rate, c.Burst = 0.01, 1
	cl, _ := client(t, c)
	_, err := cl.Call(t.Context(), post())
	require.NoError(t, err, "the burst")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = cl.Call(ctx, post())
	require.Equal(t, fault.Limited, fault.KindOf(err))
	require.Equal(t, int64(1), s.hits.Load())
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `1`) }))
	t.Cleanup(s.Close)
	c := config(s.URL)
	cl, _ := client(t, c)
	_, err := cl.Call(t.Context(), post())
	require.ErrorContains(t, err, "check the certificate")
	require.Equal(t, fault.Final, fault.KindOf(err))

	c.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(c.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	cl, _ = client(t, c)
	answer, err := cl.Call(t.Context(), post())
	require.NoError(t, err)
	require.Equal(t, int64(1), answer)
	c.BaseURL = strings.Replace(c.BaseURL, "127.0.0.1", "localhost", 1)
	cl, _ = client(t, c)
	_, err = cl.Call(t.Context(), post())
	require.ErrorContains(t, err, "check the certificate", "the name is not in the certificate")
}

func TestOldTLSIsRefused(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `1`) }))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	s.StartTLS()
	t.Cleanup(s.Close)
	c := config(s.URL)
	c.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(c.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	cl, _ := client(t, c)
	_, err := cl.Call(t.Context(), post())
	require.ErrorContains(t, err, "TLS 1.2")
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	cl, reg := client(t, config("http://"+l.Addr().String()))
	_, err = cl.Call(t.Context(), post())
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.ErrorContains(t, err, "cannot connect")
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader("# HELP tidegate_backend_retries_total Tries after the first one of a call.\n# TYPE tidegate_backend_retries_total counter\ntidegate_backend_retries_total{backend=\"core\"} 2\n"), "tidegate_backend_retries_total"))
}

func TestPathCannotChangeTheHost(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	cl, _ := client(t, config(s.URL))
	for _, p := range []string{"", "x", "@evil.example/x", ".evil.example/", ":80/"} {
		r := post()
		r.Path = p
		_, err := cl.Call(t.Context(), r)
		require.Equal(t, fault.Invalid, fault.KindOf(err), p)
	}
	require.Zero(t, s.hits.Load())
}

func TestValidateNamesTheField(t *testing.T) {
	require.NoError(t, config("http://core:80").Validate())
	for field, change := range map[string]func(*backend.Config){
		"base_url":       func(c *backend.Config) { c.BaseURL = "" },
		"base_url ":      func(c *backend.Config) { c.BaseURL = "ftp://x" },
		"base_url  ":     func(c *backend.Config) { c.BaseURL = "http://u:p@x" },
		"base_url   ":    func(c *backend.Config) { c.BaseURL = "http://x?y" },
		"headers":        func(c *backend.Config) { c.Headers = map[string]string{"X": "a\r\nb"} },
		"headers ":       func(c *backend.Config) { c.Headers = map[string]string{"Idempotency-Key": "a"} },
		"headers  ":      func(c *backend.Config) { c.Headers = map[string]string{"authorization": "a"} },
		"authorization":  func(c *backend.Config) { c.Authorization = "Bearer x\n" },
		"ca_file":        func(c *backend.Config) { c.CAFile = "absent.pem" },
		"timeout":        func(c *backend.Config) { c.Timeout = time.Hour },
		"attempts":       func(c *backend.Config) { c.Attempts = -1 },
		"name":           func(c *backend.Config) { c.Name = "Core Bank" },
		"backoff_min":    func(c *backend.Config) { c.BackoffMin = time.Minute },
		"max_response":   func(c *backend.Config) { c.MaxResponse = 1 << 30 },
		"rate":           func(c *backend.Config) { c.Rate = -1 },
		"burst":          func(c *backend.Config) { c.Burst = -1 },
		"concurrency":    func(c *backend.Config) { c.Concurrency = -1 },
		"retry_statuses": func(c *backend.Config) { c.RetryStatuses = []int{404} },
	} {
		c := config("http://core")
		change(&c)
		err := c.Validate()
		require.Error(t, err, field)
		require.Equal(t, strings.TrimSpace(field), fault.FieldOf(err), "%v", err)
		require.NotContains(t, err.Error(), "Bearer")
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",null,true]}`, `1e999`, `-0`, `[[[[`, "\xEF\xBB\xBF", `{"a":1}{`, `123456789012345678901234567890`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		v, err := backend.Decode([]byte(body))
		if err != nil {
			return
		}
		_, err = json.Marshal(v)
		require.NoError(t, err, "what was decoded is JSON again")
	})
}
