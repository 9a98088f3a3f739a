package proxy_test

import (
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/run"
	"tidegate/pkg/wechat"
	"tidegate/proxy"
)

// attackers are connections that are kept open until the end of the test.
type attackers struct {
	conns []net.Conn
	wg    sync.WaitGroup
}

func (f *fort) attackers(n int, each func(i int, c net.Conn)) *attackers {
	f.t.Helper()
	a := &attackers{}
	for i := range n {
		c, err := net.Dial("tcp", f.p.Addr())
		require.NoError(f.t, err)
		a.conns = append(a.conns, c)
		a.wg.Go(func() { each(i, c) })
	}
	f.t.Cleanup(func() {
		for _, c := range a.conns {
			_ = c.Close()
		}
		a.wg.Wait()
	})
	return a
}

// drip writes a byte at a time until the door has had enough.
func drip(c net.Conn, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range tick.C {
		if _, err := c.Write([]byte("x")); err != nil {
			return
		}
	}
}

// closedWithin reads until the door closes and tells how long that took.
func closedWithin(t *testing.T, conns []net.Conn, limit time.Duration) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for _, c := range conns {
		require.NoError(t, c.SetReadDeadline(deadline))
		_, err := io.Copy(io.Discard, c)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "a connection was still open after %s", limit)
	}
}

// served delivers genuine callbacks meanwhile and gives the 99th percentile.
func (f *fort) served(n, first int) time.Duration {
	f.t.Helper()
	took := make([]time.Duration, n)
	for i := range n {
		v, body := f.delivery(text(first+i, "x"))
		began := time.Now()
		f.requireTaken(f.post(v.Encode(), body))
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[n*99/100]
}

// bearable is 500 ms, or more where the machine is slow without any attack.
func (f *fort) bearable() time.Duration {
	f.t.Helper()
	return max(500*time.Millisecond, 5*f.served(50, 100000))
}

func TestS29DrippedHeadersHoldNobodyUp(t *testing.T) {
	// They come from many addresses, as far as the door can tell.
	f := newFort(t, wechat.ModeSafe, func(c *proxy.Config, _ *proxy.Account) { c.HTTP.MaxConnectionsPerAddress = 5000 })
	bearable := f.bearable()
	n := crowd(500, 2000)
	a := f.attackers(n, func(i int, c net.Conn) {
		_, _ = io.WriteString(c, "POST /wx/card?signature=x HTTP/1.1\r\nHost: x\r\nX-"+strconv.Itoa(i)+": ")
		drip(c, 100*time.Millisecond)
	})
	require.Less(t, f.served(100, 1), bearable)
	closedWithin(t, a.conns, 20*time.Second) // the limit is 2 s
	require.Eventually(t, func() bool { return f.refused()[run.ReasonIncomplete] == float64(n) }, 10*time.Second, time.Millisecond, "%v", f.refused())
	require.Len(t, f.q.callbacks(t), 150)
}

func TestS30SlowBodiesAreCut(t *testing.T) {
	f := newFort(t, wechat.ModeSafe, func(c *proxy.Config, _ *proxy.Account) { c.HTTP.ReadTimeout = 1500 * time.Millisecond })
	bearable := f.bearable()
	const n = 200
	slow := f.attackers(n, func(_ int, c net.Conn) {
		v, body := f.delivery(text(1, "never whole"))
		_, _ = io.WriteString(c, rawPost("/wx/card?"+v.Encode(), body)[:300])
		drip(c, 100*time.Millisecond)
	})
	require.Less(t, f.served(50, 10), bearable)
	closedWithin(t, slow.conns, 20*time.Second)
	require.Equal(t, float64(n), f.refused()["read"])
	require.Len(t, f.q.callbacks(t), 100, "nothing of a body that did not end")
}

// Who reads no answers gets as many as the buffers on the way hold. Then the
// door gives its place to somebody else.
func TestS30SlowReadersAreCut(t *testing.T) {
	const n = 3
	f := newFort(t, wechat.ModeSafe, func(c *proxy.Config, _ *proxy.Account) {
		c.HTTP.WriteTimeout, c.HTTP.MaxConnectionsPerAddress = 2*time.Second, n
	})
	f.attackers(n, func(_ int, c net.Conn) {
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		v := f.signed()
		v.Set("echostr", strings.Repeat("e", 500))
		many := strings.Repeat("GET /wx/card?"+v.Encode()+" HTTP/1.1\r\nHost: x\r\n\r\n", 100)
		for {
			if _, err := io.WriteString(c, many); err != nil {
				return
			}
		}
	})
	v, body := f.delivery(text(1, "x"))
	require.Zero(t, f.post(v.Encode(), body).status, "they have all the places")
	require.Positive(t, f.refused()[run.ReasonConnections])
	require.Eventually(t, func() bool { return f.post(v.Encode(), body).status == 200 }, 20*time.Second, 10*time.Millisecond)
	require.Len(t, f.q.callbacks(t), 1)
}
