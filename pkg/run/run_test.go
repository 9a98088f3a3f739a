package run_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFirstFailureEndsTheGroup(t *testing.T) {
	g := run.NewGroup(t.Context())
	ended := make(chan struct{})
	g.Go(run.Func("patient", func(ctx context.Context) error { <-ctx.Done(); close(ended); return ctx.Err() }))
	g.Go(run.Func("broken", func(context.Context) error { return errors.New("no disk") }))
	require.EqualError(t, g.Wait(), "broken: no disk")
	<-ended
}

// A context of its own that ended is a failure of the service; the group's is not.
func TestCanceledBeforeTheEndIsAFailure(t *testing.T) {
	g := run.NewGroup(t.Context())
	g.Go(run.Func("hasty", func(context.Context) error { return context.Canceled }))
	<-g.Done()
	require.ErrorIs(t, g.Wait(), context.Canceled)

	g = run.NewGroup(t.Context())
	g.Go(run.Func("obedient", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
	g.Stop()
	require.NoError(t, g.Wait())
}

func TestPanicBecomesAnError(t *testing.T) {
	g := run.NewGroup(t.Context())
	g.Go(run.Func("wild", func(context.Context) error { panic("boom") }))
	require.ErrorContains(t, g.Wait(), "wild: panic: boom")
}

func TestStackStopsInReverseAndOnce(t *testing.T) {
	var s run.Stack
	var order []string
	for _, n := range []string{"kafka", "redis", "door"} {
		s.Push(n, func(context.Context) error { order = append(order, n); return errors.New(n + " sulks") })
	}
	err := s.Stop(t.Context())
	require.Equal(t, []string{"door", "redis", "kafka"}, order)
	require.ErrorContains(t, err, "stop redis: redis sulks")
	require.NoError(t, s.Stop(t.Context()))
}

func TestEveryCallsAtOnceAndThenEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		calls := 0
		run.Every(ctx, time.Second, func(context.Context) { calls++ })
		require.Equal(t, 4, calls)
	})
}

func serve(t *testing.T, c run.HTTPConfig, h http.HandlerFunc) (addr string, stop func() error) {
	t.Helper()
	return serveLogged(t, c, h, zap.NewNop())
}

func serveLogged(t *testing.T, c run.HTTPConfig, h http.HandlerFunc, l *zap.Logger) (addr string, stop func() error) {
	t.Helper()
	c.Addr = "127.0.0.1:0"
	s, err := run.NewHTTPServer("door", c, h, l)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s.Addr(), func() error { cancel(); return <-done }
}

func TestStopWaitsForTheRequestInFlight(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	addr, stop := serve(t, run.HTTPConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "done")
	})
	got := make(chan string, 1)
	go func() {
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := c.Get("http://" + addr)
		if err != nil {
			got <- err.Error()
			return
		}
		b, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		got <- string(b)
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	close(release)
	require.Equal(t, "done", <-got)
	require.NoError(t, <-stopped)
}

func TestLargeHeadersAreRefused(t *testing.T) {
	addr, stop := serve(t, run.HTTPConfig{}, func(http.ResponseWriter, *http.Request) {})
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("y", 20<<10)+"\r\n\r\n")
	require.NoError(t, err)
	b, _ := io.ReadAll(c)
	require.Contains(t, string(b), "431")
	_ = c.Close()
	require.NoError(t, stop())
}

// A request that says both how long it is and that it comes in chunks must not
// be followed by another one on its connection.
func TestNothingIsSmuggledBehindChunks(t *testing.T) {
	var served atomic.Int32
	addr, stop := serve(t, run.HTTPConfig{}, func(_ http.ResponseWriter, r *http.Request) {
		served.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 39\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
		"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	b, _ := io.ReadAll(c)
	require.Equal(t, 1, strings.Count(string(b), "HTTP/1.1 "), string(b))
	require.Equal(t, int32(1), served.Load())
	_ = c.Close()
	require.NoError(t, stop())
}

// A panic is a defect of ours: it is seen at the usual level, without what a
// client sent.
func TestPanicOfAHandlerIsLogged(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	addr, stop := serveLogged(t, run.HTTPConfig{}, func(_ http.ResponseWriter, r *http.Request) {
		panic("canary " + r.URL.Path)
	}, zap.New(core))
	_, err := http.Get("http://" + addr + "/oOpenidOfSomebody") //nolint:bodyclose // there is no answer
	require.Error(t, err)
	require.NoError(t, stop())
	require.Equal(t, 1, logs.FilterLevelExact(zap.ErrorLevel).Len())
	e := logs.All()[0]
	require.NotContains(t, e.Message+e.ContextMap()["stack"].(string), "canary")
	require.NotContains(t, e.ContextMap()["stack"], "oOpenid")
	require.Contains(t, e.ContextMap()["stack"], "run_test.go")
}

func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	addr, stop := serve(t, run.HTTPConfig{MaxConnections: 1}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") })
	first, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	ask := func(c net.Conn) string {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		b := make([]byte, 15)
		_, _ = io.ReadFull(c, b)
		return string(b)
	}
	require.Equal(t, "HTTP/1.1 200 OK", ask(first))
	second, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, second.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, _ = io.WriteString(second, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	_, err = second.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout", "the second connection must wait")
	require.NoError(t, first.Close())
	require.NoError(t, second.SetReadDeadline(time.Time{}))
	b := make([]byte, 15)
	_, err = io.ReadFull(second, b)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 200 OK", string(b))
	_ = second.Close()
	require.NoError(t, stop())
}

func TestBadAddressSaysWhatToDo(t *testing.T) {
	_, err := run.NewHTTPServer("door", run.HTTPConfig{Addr: "8080"}, nil, zap.NewNop())
	require.ErrorContains(t, err, "give host:port")
}
