package backend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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
