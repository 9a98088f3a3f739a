package run_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/run"
)

// G18: a server that stops breaks no request of clients that keep their
// connections: a POST is answered, or its connection was refused, and then
// another node takes it.
func TestAStopBreaksNoRequest(t *testing.T) {
	for range 4 {
		s, err := run.NewHTTPServer("x", run.HTTPConfig{Addr: "127.0.0.1:0"}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hi")
		}), zap.NewNop())
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		tr := &http.Transport{MaxIdleConnsPerHost: 500}
		client := &http.Client{Transport: tr}
		var wg sync.WaitGroup
		served := make(chan struct{}, 1000)
		keepOpen(t, tr, s.Addr(), 100)
		for range 16 {
			wg.Go(func() {
				for {
					res, err := client.Post("http://"+s.Addr(), "text/plain", strings.NewReader("hello"))
					var op *net.OpError
					if errors.As(err, &op) && op.Op == "dial" {
						return
					}
					if err != nil {
						t.Errorf("a request was broken: %v", err)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					select {
					case served <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 500 {
			<-served
		}
		stop()
		wg.Wait()
		require.NoError(t, <-ended)
		tr.CloseIdleConnections()
	}
}

// keepOpen leaves so many idle connections with a client, as a burst does.
func keepOpen(t *testing.T, tr *http.Transport, addr string, n int) {
	t.Helper()
	var bodies []io.ReadCloser
	for range n {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr, nil)
		require.NoError(t, err)
		res, err := tr.RoundTrip(req) //nolint:bodyclose // below
		require.NoError(t, err)
		bodies = append(bodies, res.Body) // an unread answer keeps its connection busy
	}
	for _, b := range bodies {
		_, _ = io.Copy(io.Discard, b)
		_ = b.Close()
	}
}

// A client that keeps a connection and says nothing holds up a stop for a
// moment only.
func TestAnIdleConnectionDoesNotHoldUpAStop(t *testing.T) {
	s, err := run.NewHTTPServer("x", run.HTTPConfig{Addr: "127.0.0.1:0"}, http.NotFoundHandler(), zap.NewNop())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	res, err := http.Get("http://" + s.Addr())
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, res.Body)
	require.NoError(t, res.Body.Close())
	began := time.Now()
	stop()
	require.NoError(t, <-ended)
	require.Less(t, time.Since(began), 5*time.Second)
	http.DefaultClient.CloseIdleConnections()
}
