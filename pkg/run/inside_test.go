package run_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/run"
)

// waiting is a strict server whose handlers say that they are in and wait to be
// let out.
func waiting(t *testing.T) (addr string, in chan *http.Request, out chan struct{}) {
	t.Helper()
	in, out = make(chan *http.Request), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		in <- r
		<-out
		_, _ = fmt.Fprintf(w, "%s %s", r.URL.Path, b)
	})
	server, err := run.NewHTTPServer("door", run.HTTPConfig{Addr: "127.0.0.1:0"}, h, zap.NewNop(), run.Strict(nil))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	return server.Addr(), in, out
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// While a handler works nobody reads from the connection, and nothing of what
// comes meanwhile is lost.
func TestWhatComesDuringAHandlerIsServedNext(t *testing.T) {
	addr, in, out := waiting(t)
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, post("/1", "one"))
	require.NoError(t, err)
	<-in
	for _, b := range []byte(post("/2", "two") + post("/3", "three")) {
		_, err = c.Write([]byte{b})
		require.NoError(t, err)
	}
	answers := bufio.NewReader(c)
	for i, want := range []string{"/1 one", "/2 two", "/3 three"} {
		if i > 0 {
			<-in
		}
		out <- struct{}{}
		res, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, want, string(b))
	}
}

// A client that hangs up does not end the work on its request; the next one, on
// another connection, is served.
func TestAClientThatHangsUpEndsNoHandler(t *testing.T) {
	addr, in, out := waiting(t)
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = io.WriteString(c, post("/1", "one"))
	require.NoError(t, err)
	first := <-in
	require.NoError(t, c.(*net.TCPConn).SetLinger(0)) // a reset, at once
	require.NoError(t, c.Close())
	d, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer d.Close()
	_, err = io.WriteString(d, post("/2", "two"))
	require.NoError(t, err)
	<-in
	require.NoError(t, first.Context().Err(), "nobody has looked")
	out <- struct{}{}
	out <- struct{}{}
	res, err := http.ReadResponse(bufio.NewReader(d), nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, 200, res.StatusCode)
}
