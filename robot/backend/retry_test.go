package backend_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/robot/backend"
)

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

// TestAskedBeforeEachTry: who has lost the right to a record sends nothing any
// more, also between two tries.
func TestAskedBeforeEachTry(t *testing.T) {
	var calls atomic.Int64
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	cl, _ := client(t, config(s.URL))
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := 0
	r := post()
	r.Before = func() error {
		if asked++; asked == 2 {
			cancel(context.Canceled) // as a partition that is lost does
		}
		return context.Cause(ctx)
	}
	_, err := cl.Call(ctx, r)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, asked)
	require.EqualValues(t, 1, calls.Load())
}

// permits gives so many and then refuses.
type permits struct{ left atomic.Int64 }

func (p *permits) Acquire(context.Context, int) (func(), error) {
	if p.left.Add(-1) < 0 {
		return func() {}, fault.New(fault.Limited, "permit", "overload")
	}
	return func() {}, nil
}

// A second try that gets no permit does not turn "perhaps done" into "refused":
// the follower would be told to try again, with another key.
func TestRefusedRetryTakesNothingBack(t *testing.T) {
	var calls atomic.Int64
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		panic(http.ErrAbortHandler) // after the request was read
	})
	p := &permits{}
	p.left.Store(1)
	cl, err := backend.New(config(s.URL), p, backend.NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	_, err = cl.Call(t.Context(), post())
	require.Equal(t, fault.Ambiguous, fault.KindOf(err), "%v", err)
	require.NotContains(t, err.Error(), "overload")
	require.EqualValues(t, 1, calls.Load())

	_, err = cl.Call(t.Context(), post())
	require.Equal(t, fault.Limited, fault.KindOf(err), "the first try got none: %v", err)
}
