package run_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/run"
)

// frontServer runs h and gives its address and a way to stop it.
func frontServer(t *testing.T, h http.HandlerFunc) (addr string, stop func() error) {
	t.Helper()
	s, err := run.NewHTTPServer("door", run.HTTPConfig{Addr: "127.0.0.1:0"}, h, zap.NewNop(), run.Strict(nil))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { require.NoError(t, stop()) })
	return s.Addr(), stop
}

// An answer is what net/http would have made of it.
func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"text":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "success") },
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"two pieces": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			_, _ = io.WriteString(w, "b")
		},
		"an error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "refused", http.StatusForbidden) },
		"xml": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/xml; charset=utf-8")
			w.Header().Add("X-A", "1")
			w.Header().Add("X-A", "2\r\nX-B: 3")
			_, _ = io.WriteString(w, "<xml/>")
		},
		"found nothing": http.NotFound,
		"no content":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"twice": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.WriteHeader(http.StatusOK)
		},
		"closes": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, "bye")
		},
		"sent at once": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "once")
			_ = http.NewResponseController(w).Flush()
		},
		"echo": func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			_, _ = fmt.Fprint(w, r.Method, r.URL, r.Host, r.ContentLength, r.Header, string(b), err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr, _ := frontServer(t, h)
			other := httptest.NewServer(h)
			defer other.Close()
			ask := func(addr string) (http.Response, string) {
				c, err := net.Dial("tcp", addr)
				require.NoError(t, err)
				defer c.Close()
				_, err = io.WriteString(c, "POST /a?b=c HTTP/1.1\r\nHost: x\r\nPragma: no-cache\r\nX: y\r\nContent-Length: 4\r\n\r\nbody")
				require.NoError(t, err)
				res, err := http.ReadResponse(bufio.NewReader(c), nil)
				require.NoError(t, err)
				defer res.Body.Close()
				b, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				_, err = http.ParseTime(res.Header.Get("Date"))
				require.NoError(t, err)
				res.Header.Del("Date")
				return *res, string(b)
			}
			got, body := ask(addr)
			want, wantBody := ask(other.Listener.Addr().String())
			require.Equal(t, wantBody, body)
			require.Equal(t, want.Header, got.Header)
			require.Equal(t, []any{want.Status, want.ContentLength, want.Close, want.Proto}, []any{got.Status, got.ContentLength, got.Close, got.Proto})
		})
	}
}

// A handler that panics costs its client the connection and nobody else anything.
func TestAPanicClosesItsConnection(t *testing.T) {
	addr, _ := frontServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			panic("in a handler")
		}
		_, _ = io.WriteString(w, "alive")
	})
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, post("/a", "x"))
	require.NoError(t, err)
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Empty(t, got)
	res, err := http.Get("http://" + addr)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.NoError(t, res.Body.Close())
}

// A stop closes who only waits, and not who is being served.
func TestAStopWaitsForWhoIsBeingServed(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	addr, stop := frontServer(t, func(w http.ResponseWriter, _ *http.Request) {
		in <- struct{}{}
		<-out
		_, _ = io.WriteString(w, "served")
	})
	idle, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer idle.Close()
	busy, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer busy.Close()
	_, err = io.WriteString(busy, post("/a", "x"))
	require.NoError(t, err)
	<-in
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	got, err := io.ReadAll(idle)
	require.NoError(t, err)
	require.Empty(t, got)
	select {
	case err := <-ended:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	close(out)
	res, err := http.ReadResponse(bufio.NewReader(busy), nil)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "served", string(b))
	require.NoError(t, <-ended)
}

// A connection may change from plain requests to others at any time, and its
// requests stay in their order.
func TestAConnectionGoesOnBehindTheFront(t *testing.T) {
	addr, _ := frontServer(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %d", r.URL.Path, len(b))
	})
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	answers := bufio.NewReader(c)
	large := make([]byte, 20_000)
	for i, size := range []int{3, 0, 7000, 20_000, 5} { // the fourth is larger than the front's room
		_, err = io.WriteString(c, post(fmt.Sprint("/", i), string(large[:size])))
		require.NoError(t, err)
		res, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("/%d %d", i, size), string(b))
	}
	_, err = io.WriteString(c, "POST /5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	_ = res.Body.Close()
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
}
