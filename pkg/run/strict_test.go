package run_test

import (
	"context"
	"crypto/tls"
	"fmt"
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

// strictServer counts what it served and what it reported.
type strictServer struct {
	addr     string
	mu       sync.Mutex
	served   []string
	reported []string
}

func newStrict(t *testing.T, change ...func(*run.HTTPConfig)) *strictServer {
	t.Helper()
	s := &strictServer{}
	c := run.HTTPConfig{Addr: "127.0.0.1:0"}
	for _, ch := range change {
		ch(&c)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
		s.mu.Lock()
		s.served = append(s.served, r.Method+" "+r.URL.Path+" "+string(b))
		s.mu.Unlock()
		_, _ = io.WriteString(w, "hi")
	})
	server, err := run.NewHTTPServer("door", c, h, zap.NewNop(), run.Strict(func(reason string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reported = append(s.reported, reason)
	}))
	require.NoError(t, err)
	s.addr = server.Addr()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return s
}

// send writes pieces one after the other and gives everything that comes back
// until the server closes.
func (s *strictServer) send(t *testing.T, pieces ...string) string {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	for _, p := range pieces {
		_, _ = io.WriteString(c, p) // the server may have closed on purpose
	}
	_ = c.(*net.TCPConn).CloseWrite()
	b, _ := io.ReadAll(c)
	return string(b)
}

func (s *strictServer) counts() (served, reported []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.served...), append([]string(nil), s.reported...)
}

const hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"

func TestAStrictServerRefusesWhatCouldBeReadInTwoWays(t *testing.T) {
	headers := func(n int) string {
		var b strings.Builder
		for i := range n - 1 { // Host is one of them
			fmt.Fprintf(&b, "H%d: v\r\n", i)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		request string
		status  string
		reason  string
	}{
		"chunked":                {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, "400", run.ReasonChunked},
		"length and chunks":      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\ntransfer-encoding:chunked\r\n\r\n0\r\n\r\n" + hidden, "400", run.ReasonChunked},
		"unknown coding":         {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n" + hidden, "501", run.ReasonChunked},
		"two lengths":            {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!" + hidden, "400", run.ReasonLength},
		"one length twice":       {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\ncontent-LENGTH: 5\r\n\r\nhello" + hidden, "400", run.ReasonLength},
		"a list of lengths":      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nhello" + hidden, "400", run.ReasonLength},
		"negative length":        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n" + hidden, "400", run.ReasonLength},
		"length with a sign":     {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello" + hidden, "400", run.ReasonLength},
		"length of 30 digits":    {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + strings.Repeat("9", 30) + "\r\n\r\n" + hidden, "400", run.ReasonLength},
		"no length at all":       {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n" + hidden, "400", run.ReasonLength},
		"space before colon":     {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nhello" + hidden, "400", run.ReasonMalformed},
		"bare line feed":         {"POST / HTTP/1.1\r\nHost: x\nContent-Length: 5\r\n\r\nhello" + hidden, "400", run.ReasonLineFeed},
		"only line feeds":        {"POST / HTTP/1.1\nHost: x\nContent-Length: 5\n\nhello" + hidden, "400", run.ReasonLineFeed},
		"folded":                 {"POST / HTTP/1.1\r\nHost: x\r\nX: a\r\n Content-Length: 5\r\n\r\n" + hidden, "400", run.ReasonFolded},
		"folded with a tab":      {"POST / HTTP/1.1\r\nHost: x\r\nX: a\r\n\tb\r\n\r\n" + hidden, "400", run.ReasonFolded},
		"101 headers":            {"GET / HTTP/1.1\r\nHost: x\r\n" + headers(101) + "\r\n" + hidden, "431", run.ReasonHeaderCount},
		"HTTP/2 by knowledge":    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505", run.ReasonMalformed},
		"HTTP/0.9":               {"GET /\r\n\r\n", "400", run.ReasonMalformed},
		"no request":             {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400", run.ReasonMalformed},
		"control in a header":    {"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", "400", run.ReasonMalformed},
		"two hosts":              {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400", run.ReasonMalformed},
		"cut off":                {"GET / HTTP/1.1\r\nHost: x\r\nX: y", "400", run.ReasonIncomplete},
		"a long line, then cut":  {"GET / HTTP/1.1\r\nX: " + strings.Repeat("y", 9000), "431", run.ReasonHeaderSize},
		"expects something else": {"GET / HTTP/1.1\r\nHost: x\r\nExpect: a-miracle\r\n\r\n", "417", run.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pieces := range [][]string{{c.request}, strings.SplitAfter(c.request, "")} {
				s := newStrict(t)
				got := s.send(t, pieces...)
				// Behind a request in pieces the server closes while we write: its
				// answer may be lost on the way.
				if got != "" || len(pieces) == 1 {
					require.Equal(t, 1, strings.Count(got, "HTTP/1.1 "), got)
					require.True(t, strings.HasPrefix(got, "HTTP/1.1 "+c.status+" "), got)
				}
				require.Eventually(t, func() bool { _, r := s.counts(); return len(r) > 0 }, 10*time.Second, time.Millisecond)
				served, reported := s.counts()
				require.Empty(t, served)
				require.Equal(t, []string{c.reason}, reported)
			}
		})
	}
}

// Headers are exactly as large as they may be.
func TestTheHeaderLimitIsExact(t *testing.T) {
	request := func(size int) string {
		head, tail := "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: ", "\r\n\r\n"
		return head + strings.Repeat("y", size-len(head)-len(tail)) + tail
	}
	for _, limit := range []int{8 << 10, 2 << 10} {
		for size, want := range map[int]string{limit: "200", limit + 1: "431", limit + 3000: "431"} {
			s := newStrict(t, func(c *run.HTTPConfig) { c.MaxHeaderBytes = limit })
			got := s.send(t, request(size))
			require.True(t, strings.HasPrefix(got, "HTTP/1.1 "+want), "%d of %d: %.60s", size, limit, got)
		}
	}
}

func TestAStrictServerServesWhatIsInForm(t *testing.T) {
	s := newStrict(t)
	post := "POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: text/xml\r\nContent-Length: 12\r\n\r\nGET\n / \n\n b\n"
	several := post + "\r\n" + "GET /b HTTP/1.1\r\nHost: x\r\n\r\n" + "POST /c HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 3000) + "\r\nContent-Length:\t 2 \r\n\r\nhi" +
		"GET /d HTTP/1.0\r\n\r\n"
	for _, pieces := range [][]string{{several}, strings.SplitAfter(several, "")} {
		got := s.send(t, pieces...)
		require.Equal(t, 4, strings.Count(got, " 200 OK\r\n"), got)
		served, reported := s.counts()
		require.Equal(t, []string{"POST /a GET\n / \n\n b\n", "GET /b ", "POST /c hi", "GET /d "}, served[len(served)-4:])
		require.Empty(t, reported)
	}
}

func TestOneAddressCannotTakeEveryPlace(t *testing.T) {
	s := newStrict(t, func(c *run.HTTPConfig) { c.MaxConnectionsPerAddress = 3 })
	ask := func(c net.Conn) error {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 15))
		return err
	}
	open := make([]net.Conn, 3)
	for i := range open {
		c, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		require.NoError(t, ask(c))
		open[i] = c
	}
	for range 5 {
		c, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		require.Error(t, ask(c), "closed at once")
		_ = c.Close()
	}
	// Another address has its own places: 127.0.0.2 is as much this machine.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	if other, err := d.Dial("tcp", s.addr); err == nil { // not every system has it
		require.NoError(t, ask(other))
		_ = other.Close()
	}
	require.NoError(t, open[0].Close())
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		defer c.Close()
		return ask(c) == nil
	}, 5*time.Second, time.Millisecond, "a place that is left is free")
	_, reported := s.counts()
	require.GreaterOrEqual(t, len(reported), 5)
	require.NotContains(t, strings.ReplaceAll(strings.Join(reported, ""), run.ReasonConnections, ""), "c")
	for _, c := range open[1:] {
		_ = c.Close()
	}
}

func TestTrustedProxiesAreNotCounted(t *testing.T) {
	s := newStrict(t, func(c *run.HTTPConfig) {
		c.MaxConnectionsPerAddress, c.TrustedProxies = 1, []string{"127.0.0.0/8"}
	})
	for range 5 {
		c, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 15))
		require.NoError(t, err)
	}
}

func TestTrustedProxiesAreNotEverybody(t *testing.T) {
	for list, want := range map[string]string{
		"any":         `trusted_proxies: "any" would believe`,
		"0.0.0.0/0":   `trusted_proxies: "0.0.0.0/0" would believe`,
		"10.9.8.7/0":  "list your load balancers",
		"::/0":        `trusted_proxies: "::/0" would believe`,
		"10.0.0.0/99": "trusted_proxies: ",
	} {
		c := run.HTTPConfig{Addr: "127.0.0.1:0", TrustedProxies: []string{list}}
		require.ErrorContains(t, c.Validate(), want)
	}
	require.NoError(t, run.HTTPConfig{Addr: "127.0.0.1:0", TrustedProxies: []string{"10.0.0.0/8", "fd00::/8"}}.Validate())
}

// What would panic or cut off every request is refused before the port is
// opened, by its key and with what it may be.
func TestSettingsOfAListenerAreChecked(t *testing.T) {
	for want, change := range map[string]func(*run.HTTPConfig){
		"read_header_timeout -1s: use 1ms to 1h, or 0 for the default (2s)": func(c *run.HTTPConfig) { c.ReadHeaderTimeout = -time.Second },
		"read_timeout 5ns: use 1ms to 1h":                                   func(c *run.HTTPConfig) { c.ReadTimeout = 5 },
		"write_timeout 2h0m0s: use 1ms to 1h":                               func(c *run.HTTPConfig) { c.WriteTimeout = 2 * time.Hour },
		"idle_timeout -1ns: use 1ms to 1h":                                  func(c *run.HTTPConfig) { c.IdleTimeout = -1 },
		"drain_timeout -1ns: use 1ms to 1h":                                 func(c *run.HTTPConfig) { c.DrainTimeout = -1 },
		"max_header_bytes -1: use 1024 to 1048576":                          func(c *run.HTTPConfig) { c.MaxHeaderBytes = -1 },
		"max_header_bytes 1048577: use 1024":                                func(c *run.HTTPConfig) { c.MaxHeaderBytes = 1<<20 + 1 },
		"max_connections -1: use 1 to 1000000, or 0":                        func(c *run.HTTPConfig) { c.MaxConnections = -1 },
		"max_connections 1000001: use 1":                                    func(c *run.HTTPConfig) { c.MaxConnections = 1_000_001 },
		"max_connections_per_address -1: use 1 to 1000000":                  func(c *run.HTTPConfig) { c.MaxConnectionsPerAddress = -1 },
	} {
		c := run.DefaultHTTPConfig()
		c.Addr = "127.0.0.1:0"
		require.NoError(t, c.Validate())
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
		_, err := run.NewHTTPServer("door", c, http.NotFoundHandler(), zap.NewNop())
		require.ErrorContains(t, err, "door: "+want)
	}
	require.NoError(t, run.HTTPConfig{Addr: "127.0.0.1:0"}.Validate(), "0 is the default everywhere")
}

// A strict server speaks TLS like any other, and offers no HTTP/2.
func TestAStrictServerWithTLS(t *testing.T) {
	cert, key, pool := certificate(t)
	s := newStrict(t, func(c *run.HTTPConfig) { c.CertFile, c.KeyFile = cert, key })
	conf := &tls.Config{RootCAs: pool, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	c, err := tls.Dial("tcp", s.addr, conf)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, "http/1.1", c.ConnectionState().NegotiatedProtocol)
	_, err = io.WriteString(c, "GET /over-tls HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(b), "200 OK")
	_, err = tls.Dial("tcp", s.addr, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	require.ErrorContains(t, err, "no application protocol")
}
