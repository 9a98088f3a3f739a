package plugin_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/robot/plugin"
)

// These are the hazards of calls that we make (reliability S39 to S47), as far
// as an engine's address, answer and credentials can bring them. What pkg/outhttp
// refuses in general is its own tests'; here it is shown that engines go through
// it, whole.

// names is a name server that answers A questions about anything with the next
// address of its list; the last one stays.
type names struct {
	conn  net.PacketConn
	next  []netip.Addr
	asked atomic.Int64
}

func startNames(t *testing.T, next ...string) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &names{conn: conn}
	for _, a := range next {
		n.next = append(n.next, netip.MustParseAddr(a))
	}
	done := make(chan struct{})
	go func() { defer close(done); n.serve() }()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return n
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *names) serve() {
	buf := make([]byte, 512)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		end := 12 + bytes.IndexByte(buf[12:size], 0) + 5 // the name, its end, type and class
		out := append([]byte{}, buf[:end]...)
		out[2], out[3] = 0x84, 0
		copy(out[6:12], make([]byte, 6))
		if binary.BigEndian.Uint16(out[end-4:]) == 1 {
			a := n.next[min(int(n.asked.Add(1)), len(n.next))-1].As4()
			out[7] = 1
			out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			out = append(out, a[:]...)
		}
		_, _ = n.conn.WriteTo(out, from)
	}
}

func portOf(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return u.Port()
}

func TestS39AnInternalAddressIsNoEngineUnlessItIsAllowed(t *testing.T) {
	s, seen := server(t, says(`{"silence":true}`))
	for _, raw := range []string{"http://169.254.169.254/latest/", s.URL, "http://10.0.0.1/", "http://127.0.0.1:6379/", "http://[::1]:9092/"} {
		cfg := config(raw)
		cfg.Allow = nil
		require.ErrorContains(t, cfg.Validate(), "not public", raw)
	}
	cfg := config("http://localhost:" + portOf(t, s.URL) + "/")
	cfg.Allow = nil
	_, err := client(t, cfg, plugin.Options{}).Ask(t.Context(), callback(), ask())
	require.Equal(t, fault.Invalid, fault.KindOf(err), "a name is looked at when it is dialled")
	require.Zero(t, seen.Load())
	_, err = client(t, config(s.URL), plugin.Options{}).Ask(t.Context(), callback(), ask())
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.Load())
}

func TestS40ANameThatTurnsInside(t *testing.T) {
	s, seen := server(t, says(`{"silence":true}`))
	n := startNames(t, "93.184.216.34", "127.0.0.1")
	cfg := config("http://bot.example:" + portOf(t, s.URL) + "/")
	cfg.Allow = nil
	_, err := client(t, cfg, plugin.Options{Resolver: n.resolver()}).Ask(t.Context(), callback(), ask())
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	require.ErrorContains(t, err, "not public")
	require.EqualValues(t, 2, n.asked.Load(), "the second answer must have been the one that was dialled")
	require.Zero(t, seen.Load())
}

func TestS41ARedirectIsNotFollowedAndTakesNoCredentialsAlong(t *testing.T) {
	inner, seen := server(t, says(`{"silence":true}`))
	outer, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner.URL, http.StatusTemporaryRedirect)
	})
	_, err := client(t, config(outer.URL), plugin.Options{}).Ask(t.Context(), callback(), ask())
	require.ErrorContains(t, err, "redirects are not followed")
	require.Zero(t, seen.Load())
}

func TestS42S43S44SpellingsOfInsideAreRefused(t *testing.T) {
	for _, raw := range []string{
		"http://[::ffff:127.0.0.1]/", "http://[::]/", "http://0.0.0.0/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://[::127.0.0.1]/", "http://100.64.0.1/", "http://198.18.0.1/", "http://127.1/", "http://0x7f000001/", "http://2130706433/",
		"http://good.example@127.0.0.1/", "http://good.example\\@127.0.0.1/", "http://good.example#@127.0.0.1/", "http://127.0.0.1./", "http://ｇood.example/",
		"gopher://good.example/", "file:///etc/passwd", "unix:/run/redis.sock", "http://good.example/\r\nX-Evil: 1",
	} {
		cfg := config(raw)
		cfg.Allow = nil
		err := cfg.Validate()
		require.Error(t, err, raw)
		require.ErrorContains(t, err, "url", raw)
	}
}

// The environment's proxy is read once per process, so the address is the same
// in every run: a port on which nothing answers.
func TestS45TheProxyOfTheEnvironmentIsNotAsked(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:9")
	asked, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "http", Host: "bot.example"}})
	require.NoError(t, err)
	require.NotNil(t, asked, "the environment must name a proxy for this call")
	s, seen := server(t, says(`{"silence":true}`))
	cfg := config("http://bot.example:" + portOf(t, s.URL) + "/")
	_, err = client(t, cfg, plugin.Options{Resolver: startNames(t, "127.0.0.1").resolver()}).Ask(t.Context(), callback(), ask())
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.Load())
}

func TestS46AnAnswerIsCutAtItsSizeAndTime(t *testing.T) {
	var sent atomic.Int64
	chunk := bytes.Repeat([]byte(" "), 64<<10)
	for name, h := range map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for range 16 << 10 {
				n, err := w.Write(chunk)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		},
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"halting": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"silence"`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"10,000 headers": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 10_000 {
				w.Header().Set(fmt.Sprintf("X-Header-%d", i), "value")
			}
			_, _ = io.WriteString(w, `{"silence":true}`)
		},
	} {
		s, seen := server(t, h)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		cfg := config(s.URL)
		cfg.Timeout = 300 * time.Millisecond
		_, err := client(t, cfg, plugin.Options{}).Ask(t.Context(), callback(), ask())
		require.Equal(t, fault.Unavailable, fault.KindOf(err), name)
		require.EqualValues(t, 1, seen.Load(), name)
	}
	require.Less(t, sent.Load(), int64(64<<20), "the endless answer must not have been read")
}

func TestS46ACompressedAnswerStaysPackedAndIsRefused(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(append(make([]byte, 8<<20), `{"silence":true}`...))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	s, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		require.Empty(t, r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	})
	_, err = client(t, config(s.URL), plugin.Options{}).Ask(t.Context(), callback(), ask())
	require.ErrorContains(t, err, "compressed")
}

func TestS47AnEngineWithACertificateOfItsOwnIsNotTrusted(t *testing.T) {
	s := httptest.NewUnstartedServer(says(`{"silence":true}`))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	_, err := client(t, config(s.URL), plugin.Options{}).Ask(t.Context(), callback(), ask())
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
}

// S51: errors go into logs, receipts and dead letters.
func TestErrorsNameNoAddressKeyTextOrFollower(t *testing.T) {
	s, _ := server(t, says(`{"replies":[{"type":"text","text":""}],"vars":{"x":"HUSH"}}`))
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	cb := callback()
	cb.OpenID, cb.Content = "oHUSH", "HUSH"
	for _, base := range []string{s.URL, dead.URL} {
		cfg := config(base + "/HUSH?key=HUSH")
		cfg.Secret = "HUSH of some length"
		_, err := client(t, cfg, plugin.Options{}).Ask(t.Context(), cb, ask())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "HUSH")
		require.True(t, strings.HasPrefix(err.Error(), "ask engine smart"), err.Error())
	}
	bad := config("http://u:HUSH@bot.example/")
	require.NotContains(t, bad.Validate().Error(), "HUSH")
}
