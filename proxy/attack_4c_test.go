package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/run"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat"
	"tidegate/proxy"
)

func TestS31HeadersAreBounded(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	v, body := f.delivery(text(1, "x"))
	request := func(headers string) string { return rawPost("/wx/card?"+v.Encode(), body, headers) }
	size := len(request("")) - len(body)
	pad := func(n int) string { return "X: " + strings.Repeat("y", n-size-len("X: \r\n")) + "\r\n" }
	f.requireRefused(431, run.ReasonHeaderSize, func() answer { return f.raw(request(pad(8193))) })
	f.requireRefused(431, run.ReasonHeaderSize, func() answer { return f.raw(request(pad(1 << 20))) })
	many := func(n int) string { // Host, Content-Type and Content-Length are there
		var b strings.Builder
		for i := range n - 3 {
			fmt.Fprintf(&b, "H%d: v\r\n", i)
		}
		return b.String()
	}
	f.requireRefused(431, run.ReasonHeaderCount, func() answer { return f.raw(request(many(101))) })
	f.requireRefused(431, run.ReasonHeaderCount, func() answer { return f.raw(request(many(200))) })
	f.requireTaken(f.raw(request(pad(8192))))
	f.requireTaken(f.raw(request(many(100))))
}

func TestS32OneRequestOneLength(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	v, body := f.delivery(text(1, "x"))
	hidden, hiddenBody := f.delivery(text(2, "smuggled"))
	tail := rawPost("/wx/card?"+hidden.Encode(), hiddenBody)
	head := "POST /wx/card?" + v.Encode() + " HTTP/1.1\r\nHost: x\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for name, c := range map[string]struct {
		request string
		status  int
		reason  string
	}{
		"10 GB":               {head + "Content-Length: 10737418240\r\n\r\n" + body, 413, "too_large"},
		"negative":            {head + "Content-Length: -1\r\n\r\n" + body, 400, run.ReasonLength},
		"two different":       {head + length + "Content-Length: 1\r\n\r\n" + body + tail, 400, run.ReasonLength},
		"two equal":           {head + length + length + "\r\n" + body + tail, 400, run.ReasonLength},
		"length and chunks":   {head + length + "Transfer-Encoding: chunked\r\n\r\n" + chunked + tail, 400, run.ReasonChunked},
		"chunks and length":   {head + "Transfer-Encoding: chunked\r\n" + length + "\r\n" + chunked + tail, 400, run.ReasonChunked},
		"chunks alone":        {head + "Transfer-Encoding: chunked\r\n\r\n" + chunked + tail, 400, run.ReasonChunked},
		"unknown coding":      {head + "Transfer-Encoding: xchunked\r\n\r\n" + chunked, 501, run.ReasonChunked},
		"two codings":         {head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked, 501, run.ReasonChunked},
		"space before colon":  {head + fmt.Sprintf("Content-Length : %d\r\n\r\n", len(body)) + body + tail, 400, run.ReasonMalformed},
		"bare line feed":      {head + "X: y\n" + length + "\r\n" + body + tail, 400, run.ReasonLineFeed},
		"all bare line feeds": {strings.ReplaceAll(head+length, "\r\n", "\n") + "\n" + body, 400, run.ReasonLineFeed},
		"folded":              {head + "X: y\r\n " + length + "\r\n" + body + tail, 400, run.ReasonFolded},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			f.requireRefused(c.status, c.reason, func() answer {
				conn, err := net.Dial("tcp", f.p.Addr())
				require.NoError(t, err)
				defer conn.Close()
				require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
				_, _ = io.WriteString(conn, c.request)
				b, _ := io.ReadAll(conn) // the connection ends with the refusal
				require.Equal(t, 1, strings.Count(string(b), "HTTP/1.1 "), "nothing behind it is a request: %s", b)
				return readAnswer(strings.NewReader(string(b)), c.request)
			})
		})
	}
	f.t = t
	require.Empty(t, f.q.callbacks(t))
	f.requireTaken(f.raw(head + length + "\r\n" + body))
}

// crowd is how many connections an attack opens: full is the number of the list,
// for which a process needs twice as many files.
func crowd(short, full int) int {
	if os.Getenv("TIDEGATE_TEST_ATTACK") == "full" {
		return full
	}
	return short
}

func TestS33OneAddressDoesNotTakeTheDoor(t *testing.T) {
	f := newFort(t, wechat.ModeSafe, func(c *proxy.Config, _ *proxy.Account) { c.HTTP.MaxConnectionsPerAddress = 200 })
	ops, err := run.NewHTTPServer("operations", run.HTTPConfig{Addr: "127.0.0.1:0"}, telemetry.NewOps(prometheus.NewRegistry()), nopLog)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ops.Run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-done) }()
	n := crowd(2000, 10_000)
	f.attackers(n, func(int, net.Conn) {})
	require.Eventually(t, func() bool { return f.refused()[run.ReasonConnections] >= float64(n-200) }, 20*time.Second, time.Millisecond)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	res, err := client.Get("http://" + ops.Addr() + "/healthz")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, 200, res.StatusCode, "the operations listener is another one")
	// Others are served: another address of this machine, where it has one.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := d.Dial("tcp", f.p.Addr())
	if err != nil {
		t.Skip("this machine has one loopback address")
	}
	defer c.Close()
	v, body := f.delivery(text(1, "x"))
	request := rawPost("/wx/card?"+v.Encode(), body)
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	f.requireTaken(readAnswer(c, request))
	require.Zero(t, f.keys()-1, "one claim")
}

func TestS34TheDoorSpeaksNoHTTP2(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	rapid := preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + strings.Repeat("\x00\x00\x01\x01\x05\x00\x00\x00\x01\x82\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08", 50)
	for _, request := range []string{preface, rapid} {
		f.requireRefused(505, run.ReasonMalformed, func() answer { return f.raw(request) })
	}
	// An upgrade is not taken: the request is answered as what it is.
	v, body := f.delivery(text(1, "x"))
	f.requireTaken(f.raw(rawPost("/wx/card?"+v.Encode(), body, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n")))
	// Trailers come with chunks, which are refused.
	v, _ = f.delivery(text(2, "x"))
	f.requireRefused(400, run.ReasonChunked, func() answer {
		return f.raw("POST /wx/card?" + v.Encode() + " HTTP/1.1\r\nHost: x\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n")
	})
	mod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^toolchain go1\.(\d+)\.(\d+)$`).FindSubmatch(mod)
	require.NotNil(t, m)
	minor, _ := strconv.Atoi(string(m[1]))
	patch, _ := strconv.Atoi(string(m[2]))
	require.True(t, minor > 26 || minor == 26 && patch >= 10, "a toolchain with the known floods repaired: %s", m[0])
}

func TestS35ForwardedForIsBelievedFromProxiesOnly(t *testing.T) {
	const inside, outside = "203.0.113.9", "198.51.100.7"
	behind := func(trusted ...string) *fort {
		return newFort(t, wechat.ModeSafe, func(c *proxy.Config, a *proxy.Account) {
			c.HTTP.TrustedProxies, a.AllowFrom = trusted, []string{"203.0.113.0/24"}
		})
	}
	n := 0
	send := func(f *fort, forwarded ...string) answer {
		n++
		v, body := f.delivery(text(n, "x"))
		headers := ""
		for _, h := range forwarded {
			headers += "X-Forwarded-For: " + h + "\r\n"
		}
		return f.raw(rawPost("/wx/card?"+v.Encode(), body, headers))
	}
	direct := behind()
	for _, claim := range []string{inside, "127.0.0.1", inside + ", " + inside} {
		direct.requireRefused(403, "address", func() answer { return send(direct, claim) })
	}
	f := behind("127.0.0.0/8", "10.0.0.0/8")
	f.requireTaken(send(f, inside))
	f.requireTaken(send(f, outside+", "+inside))
	f.requireTaken(send(f, outside, inside+", 10.0.0.3"))
	for _, claim := range [][]string{
		{outside}, {inside + ", " + outside}, {inside, outside + ",10.0.0.3"}, {inside + ", garbage"}, {"127.0.0.1"}, {}, {""}, {inside + ","}, {"[" + inside}, {inside + ", unknown"},
	} {
		f.requireRefused(403, "address", func() answer { return send(f, claim...) })
	}
	// Only this header counts, whoever writes others.
	v, body := f.delivery(text(9999, "x"))
	f.requireRefused(403, "address", func() answer {
		return f.raw(rawPost("/wx/card?"+v.Encode(), body, "X-Real-IP: "+inside+"\r\nForwarded: for="+inside+"\r\nX-Forwarded-For: "+outside+"\r\n"))
	})
}

func TestS36TheHostHeaderIsNowhereUsed(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	for i, host := range []string{"evil.example", "gate.example:99999999", "", "127.0.0.1"} {
		v, body := f.delivery(text(i+1, "x"))
		got := f.raw(strings.Replace(rawPost("/wx/card?"+v.Encode(), body, "X-Forwarded-Host: evil.example\r\n"), "Host: gate.example", "Host: "+host, 1))
		if got.status == 400 { // not even a host
			continue
		}
		f.requireTaken(got)
		require.NotContains(t, fmt.Sprint(got), "evil")
	}
	for _, r := range f.q.in("tidegate.card.callbacks") {
		require.NotContains(t, string(r.Value), "evil")
	}
	for _, target := range []string{"/wx", "/wx/nobody", "//wx/card"} {
		got := f.raw("GET " + target + " HTTP/1.1\r\nHost: evil.example\r\n\r\n")
		require.Equal(t, 404, got.status, "no redirect that could name the host")
		require.NotContains(t, fmt.Sprint(got), "evil")
	}
}

func TestS37NothingOfOperationsIsOnThePublicPort(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	for _, path := range []string{
		"/metrics", "/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/vars", "/readyz", "/readyz?verbose", "/healthz", "/ops/v1/repeats", "/ops/v1/queues",
		"/wx/../metrics", "/wx/%2e%2e/metrics", "/wx//metrics", "/", "/favicon.ico", "/.git/config", "/wx/", "/v1/messages",
	} {
		reason := "path"
		if strings.HasPrefix(path, "/wx/") && !strings.Contains(path, "%") {
			reason = "unknown_account"
		}
		f.requireRefused(404, reason, func() answer {
			got := f.raw("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NotContains(t, got.body, "goroutine")
			require.NotContains(t, got.body, "tidegate_")
			return got
		})
	}
}

func TestS38APathHasOneSpelling(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	v, body := f.delivery(text(1, "x"))
	for _, path := range []string{
		"/wx/card%2f..%2fadmin", "/wx/a%2f..%2fcard", "/wx/%63ard", "/wx/card%00", "/wx/card%20", "/wx/card/", "/wx//card", "//wx/card", "/wx/./card", "/wx/x/../card", "/./wx/card",
		"/wx/card;a=b", "/wx/card%3Fx", "/WX/card", "/wx/CARD", "/wx/card%5c", `/wx\card`, "/wx/%2e%2e%2fcard", "/wx/card\xc0\xaf",
	} {
		before := f.refused()
		records, keys := f.q.count(), f.keys()
		got := f.raw(rawPost(path+"?"+v.Encode(), body))
		require.Contains(t, []int{404, 400}, got.status, path)
		require.Empty(t, got.header.Get("Location"), "no redirect")
		require.Equal(t, []int{records, keys}, []int{f.q.count(), f.keys()})
		require.Eventually(t, func() bool { return sum(f.refused()) == sum(before)+1 }, 10*time.Second, time.Millisecond, "%s is counted once", path)
	}
	f.requireTaken(f.raw(rawPost("/wx/card?"+v.Encode(), body)))
	c, err := net.Dial("tcp", f.p.Addr())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET /wx/nobody HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 404 Not Found\r\n", line)
}

func sum(m map[string]float64) (n float64) {
	for _, v := range m {
		n += v
	}
	return n
}
