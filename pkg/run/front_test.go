package run

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const plainPost = "POST /wx/card?signature=f464&timestamp=1893456001&nonce=19&openid=oZx8 HTTP/1.1\r\n" +
	"Host: gate.example:8080\r\nUser-Agent: Mozilla/4.0\r\nAccept: */*\r\nPragma: no-cache\r\ncontent-type: text/xml\r\n" +
	"Connection: Keep-Alive\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 198.51.100.7\r\nContent-Length: 6\r\n\r\n<xml/>"

// same fails unless front reads b as net/http does, to the byte. It tells whether
// front takes it at all.
func same(t *testing.T, b []byte) bool {
	t.Helper()
	r, size := plainRequest(b, 8<<10)
	if r == nil {
		return false
	}
	rest := bufio.NewReader(bytes.NewReader(b))
	want, err := http.ReadRequest(rest)
	require.NoError(t, err)
	body, err := io.ReadAll(want.Body)
	require.NoError(t, err)
	got, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, body, got)
	left, err := io.ReadAll(rest)
	require.NoError(t, err)
	require.Len(t, left, len(b)-size, "the next request begins where net/http has it begin")
	require.Equal(t, want.URL, r.URL)
	require.Equal(t, want.Header, r.Header)
	require.Equal(t, []any{want.Method, want.RequestURI, want.Host, want.Proto, want.ContentLength, want.Close, len(want.TransferEncoding)},
		[]any{r.Method, r.RequestURI, r.Host, r.Proto, r.ContentLength, r.Close, len(r.TransferEncoding)})
	w := &watched{maxHeaders: maxHeaders, maxBytes: 8 << 10, length: -1, report: func(string) {}}
	w.observe(b[:size])
	require.Zero(t, w.flaw.Load(), "it has no flaw")
	require.Equal(t, []int64{1, 0}, []int64{int64(w.blocks.Load()), w.body})
	return true
}

func TestFrontReadsAsNetHTTPDoes(t *testing.T) {
	for _, b := range []string{
		plainPost, plainPost + plainPost,
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /wx/%2e%2E/a%20b?x=%zz HTTP/1.1\r\nHost: [::1]:80\r\nX:\t v \t\r\nx: \r\n\r\nGET",
		"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"GET //evil/a HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		require.True(t, same(t, []byte(b)), "it is taken: %q", b)
	}
}

// What is not whole or not plain is net/http's.
func TestFrontLeavesTheRest(t *testing.T) {
	for i := range len(plainPost) {
		r, _ := plainRequest([]byte(plainPost[:i]), 8<<10)
		require.Nil(t, r, "the first %d bytes", i)
	}
	head := "POST /a HTTP/1.1\r\nHost: x\r\n"
	for _, b := range []string{
		"POST /a HTTP/1.0\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
		"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
		"POST http://y/a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
		"POST /a b HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
		"POST /\x00 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
		"POST /%zz HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
		"POST /a HTTP/1.1\r\nContent-Length: 1\r\n\r\na",
		"\r\n" + plainPost,
		head + "\r\na",
		head + "Host: x\r\nContent-Length: 1\r\n\r\na",
		head + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
		head + "Content-Length: 1, 1\r\n\r\na",
		head + "Content-Length: +1\r\n\r\na",
		head + "Content-Length: 0x1\r\n\r\na",
		head + "Content-Length: 999999\r\n\r\na",
		head + "Content-Length : 1\r\n\r\na",
		head + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		head + "Content-Length: 1\r\ntransfer-encoding:\r\n\r\na",
		head + "Content-Length: 1\r\nConnection: close\r\n\r\na",
		head + "Content-Length: 1\r\nConnection: keep-alive, Upgrade\r\n\r\na",
		head + "Content-Length: 1\r\nExpect: 100-continue\r\n\r\na",
		head + "Content-Length: 1\r\nUpgrade: h2c\r\n\r\na",
		head + "Content-Length: 1\r\nX: a\r\n b\r\n\r\na",
		head + "Content-Length: 1\nX: a\r\n\r\na",
		head + "Content-Length: 1\r\nX: a\nY: b\r\n\r\na",
		head + "Content-Length: 1\r\nX: a\rb\r\n\r\na",
		head + "Content-Length: 1\r\nX: \x7f\r\n\r\na",
		head + "Content-Length: 1\r\nX\r\n\r\na",
		head + "Content-Length: 1\r\n: a\r\n\r\na",
		head + "Content-Length: 1\r\n" + strings.Repeat("X: a\r\n", maxHeaders) + "\r\na",
		"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
		"GET /a HTTP/1.1\r\nHost: x y\r\n\r\n",
	} {
		r, _ := plainRequest([]byte(b), 8<<10)
		require.Nil(t, r, "%q", b)
	}
	r, _ := plainRequest([]byte(plainPost), strings.Index(plainPost, "<xml/>")-1)
	require.Nil(t, r, "the header is one byte too large")
	r, _ = plainRequest([]byte(plainPost), strings.Index(plainPost, "<xml/>"))
	require.NotNil(t, r)
}

func FuzzFrontReadsAsNetHTTPDoes(f *testing.F) {
	f.Add([]byte(plainPost))
	f.Add([]byte("GET /a?b#c HTTP/1.1\r\nHost: x\r\nA-b: c\r\nPragma: no-cache\r\nCache-Control: x\r\n\r\n"))
	f.Add([]byte("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na"))
	f.Add([]byte("POST /a HTTP/1.1\r\nhOST: x:1\r\ncONTENT-length:\t3 \r\nTe: x\r\nTrailer: y\r\n\r\nabcGET"))
	f.Fuzz(func(t *testing.T, b []byte) { same(t, b) })
}

func BenchmarkFrontRequest(b *testing.B) {
	request := []byte(plainPost)
	b.ReportAllocs()
	for b.Loop() {
		if r, _ := plainRequest(request, 8<<10); r == nil {
			b.Fatal("not taken")
		}
	}
}
