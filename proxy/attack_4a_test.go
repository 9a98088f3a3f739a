package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
	"tidegate/proxy"
)

// with is a query with one parameter changed.
func with(v url.Values, name, value string) string {
	v = url.Values(http.Header(v).Clone())
	v.Set(name, value)
	return v.Encode()
}

// resigned puts a valid signature on an odd timestamp or nonce.
func resigned(v url.Values, name, value string) string {
	v.Set(name, value)
	v.Set("signature", wechat.Signature(token, v.Get("timestamp"), v.Get("nonce")))
	return v.Encode()
}

func TestS01WithoutASignatureTheBodyIsNotRead(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	began := time.Now()
	for _, name := range []string{"signature", "timestamp", "nonce"} {
		for _, empty := range []bool{true, false} {
			v := f.signed()
			if v.Del(name); empty {
				v.Set(name, "")
			}
			f.requireRefused(403, "missing", func() answer {
				// The body is announced and never comes: an answer proves that nobody waited for it.
				return f.raw("POST /wx/card?" + v.Encode() + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n")
			})
		}
	}
	require.Less(t, time.Since(began), proxy.DefaultConfig().HTTP.ReadTimeout, "not even to keep the connection")
	f.requireTaken(f.deliver(text(1, "x")))
}

func TestS02ASignatureHasOneSpelling(t *testing.T) {
	for _, mode := range []wechat.Mode{wechat.ModePlain, wechat.ModeSafe} {
		f := newFort(t, mode)
		names := map[string]bool{"signature": true, "msg_signature": mode == wechat.ModeSafe}
		for name, used := range names {
			if !used {
				continue
			}
			for odd, change := range map[string]func(string) string{
				"wrong": func(string) string { return strings.Repeat("0", 40) },
				"cut":   func(s string) string { return s[:39] }, "longer": func(s string) string { return s + "0" },
				"upper case": strings.ToUpper, "doubled": func(s string) string { return s + s },
				"spaces": func(s string) string { return " " + s }, "space behind": func(s string) string { return s + " " },
				"other digits": func(s string) string { return strings.Repeat("٣", 20) },
				"prefixed":     func(s string) string { return "0x" + s[2:] },
			} {
				v, body := f.delivery(text(2, odd))
				want := "query"
				if odd == "wrong" {
					want = "signature"
				}
				f.requireRefused(403, want, func() answer { return f.post(with(v, name, change(v.Get(name))), body) })
			}
		}
		f.requireTaken(f.deliver(text(3, "x")))
	}
}

func TestS03AnotherAccountsTokenOpensNothing(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	loans := account(wechat.ModePlain)
	loans.Name, loans.GhID, loans.Credentials.Token = "loans", "gh_loans", "token-of-loans"
	require.NoError(t, f.p.SetAccounts([]proxy.Account{account(wechat.ModePlain), loans}))
	v := f.signed()
	v.Set("signature", wechat.Signature("token-of-loans", v.Get("timestamp"), v.Get("nonce")))
	f.requireRefused(403, "signature", func() answer { return f.post(v.Encode(), text(1, "x")) })
	// On its own path it is good: the refusal was about the account.
	got := f.raw(rawPost("/wx/loans?"+v.Encode(), strings.ReplaceAll(text(1, "x"), ghID, "gh_loans")))
	f.requireTaken(got)
}

// S4 at the door: it does not matter where a signature begins to differ. That
// comparisons take constant time is held by a test over the source (app).
func TestS04AWrongSignatureIsWrongAtAnyByte(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	answers := map[string]bool{}
	for _, at := range []int{0, 1, 20, 38, 39} {
		for _, name := range []string{"signature", "msg_signature"} {
			v, body := f.delivery(text(1, "x"))
			s := []byte(v.Get(name))
			s[at] = map[bool]byte{true: '1', false: '0'}[s[at] == '0']
			f.requireRefused(403, "signature", func() answer {
				got := f.post(with(v, name, string(s)), body)
				got.header.Del("Date")
				answers[fmt.Sprint(got)] = true
				return got
			})
		}
	}
	require.Len(t, answers, 1, "all the same")
}

func TestS05TimestampsAreFreshFor300Seconds(t *testing.T) {
	for _, mode := range []wechat.Mode{wechat.ModePlain, wechat.ModeSafe} {
		f := newFort(t, mode)
		for _, off := range []int64{-300, 0, 300} {
			f.now.Store(fortTime + off)
			v, body := f.delivery(text(int(1000+off), "x"))
			f.now.Store(fortTime)
			f.requireTaken(f.post(v.Encode(), body))
		}
		for _, off := range []int64{-301, 301, -1 << 20, 1 << 30} {
			f.now.Store(fortTime + off)
			v, body := f.delivery(text(int(5000+off), "x"))
			f.now.Store(fortTime)
			f.requireRefused(403, "stale", func() answer { return f.post(v.Encode(), body) })
		}
	}
}

func TestS06OddTimestamps(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	for _, odd := range []string{"-1", "1e9", "+1893456000", strings.Repeat("9", 30), "٣٤", "0x70DBD880", "1893456000.0", " 1893456000", "１８９３４５６０００", "9223372036854775808", "\x00"} {
		v := f.signed()
		f.requireRefused(403, "query", func() answer { return f.post(resigned(v, "timestamp", odd), text(1, "x")) })
	}
	for _, old := range []string{"0", "1", "999999999999"} {
		v := f.signed()
		f.requireRefused(403, "stale", func() answer { return f.post(resigned(v, "timestamp", old), text(1, "x")) })
	}
}

func TestS07ARecordedRequestHasNoSecondEffect(t *testing.T) {
	for _, mode := range []wechat.Mode{wechat.ModePlain, wechat.ModeCompatible, wechat.ModeSafe} {
		t.Run(string(mode), func(t *testing.T) {
			f := newFort(t, mode)
			other := newFortAt(t, f.redis, mode)
			for i, doc := range []string{text(7, "transfer 100"), click(fortTime, "pay")} {
				v, body := f.delivery(doc)
				f.requireTaken(f.post(v.Encode(), body))
				require.Eventually(t, func() bool { // the done mark comes after the answer
					f.requireTaken(other.post(v.Encode(), body))
					return other.duplicates() > 0
				}, 10*time.Second, time.Millisecond)
				f.now.Add(60)
				other.now.Store(f.now.Load())
				for _, node := range []*fort{f, other, f} {
					f.requireTaken(node.post(v.Encode(), body))
				}
				require.Len(t, f.q.callbacks(t), i+1)
				require.Zero(t, other.q.count())
			}
			f.now.Add(301)
			v, body := f.delivery(text(8, "x"))
			f.now.Add(301)
			f.requireRefused(403, "stale", func() answer { return f.post(v.Encode(), body) })
		})
	}
}

// duplicates is how many callbacks were acknowledged as such.
func (f *fort) duplicates() (n float64) {
	f.each("tidegate_proxy_callbacks_total", func(labels map[string]string, v float64) {
		if labels["result"] == "duplicate" {
			n += v
		}
	})
	return n
}

func TestS12TheAddressCheckEchoesToWeChatOnly(t *testing.T) {
	for _, mode := range []wechat.Mode{wechat.ModePlain, wechat.ModeCompatible, wechat.ModeSafe} {
		f := newFort(t, mode)
		ask := func(v url.Values) answer { return f.raw("GET /wx/card?" + v.Encode() + " HTTP/1.1\r\nHost: x\r\n\r\n") }
		v := f.signed()
		v.Set("echostr", "<script>alert(1)</script>")
		f.requireRefused(403, "signature", func() answer {
			bad, err := url.ParseQuery(with(v, "signature", strings.Repeat("0", 40)))
			require.NoError(t, err)
			got := ask(bad)
			require.NotContains(t, got.body, "script")
			return got
		})
		got := ask(v)
		require.Equal(t, 200, got.status)
		require.Equal(t, "<script>alert(1)</script>", got.body)
		require.Equal(t, "text/plain; charset=utf-8", got.header.Get("Content-Type"))
		require.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"))
		v = f.signed()
		f.requireRefused(403, "missing", func() answer { return ask(v) })
		v.Set("echostr", strings.Repeat("x", 513))
		f.requireRefused(403, "query", func() answer { return ask(v) })
	}
}

func TestS13AParameterComesOnce(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	for _, change := range []func(string) string{
		func(q string) string { return "signature=" + strings.Repeat("0", 40) + "&" + q },
		func(q string) string { return q + "&signature=" + strings.Repeat("0", 40) },
		func(q string) string { return q + "&nonce=" },
		func(q string) string { return strings.Replace(q, "signature=", "%73ignature=", 1) },
		func(q string) string { return strings.ReplaceAll(q, "&", ";") },
		func(q string) string { return q + ";a=b" },
		func(q string) string { return q + "&=x" },
		func(q string) string { return q + "&a[]=x" },
		func(q string) string { return q + "&" + strings.Repeat("x", 3000) + "=1" },
		func(q string) string { return q + "&x=%zz" },
	} {
		v := f.signed()
		f.requireRefused(403, "query", func() answer { return f.post(change(v.Encode()), text(1, "x")) })
	}
}

func TestS14UnknownAccountsAreAllTheSame(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	v, body := f.delivery(text(1, "x"))
	series := func() (n int) {
		f.each("tidegate_proxy_refused_total", func(map[string]string, float64) { n++ })
		return n
	}
	f.requireRefused(404, "unknown_account", func() answer { return f.raw(rawPost("/wx/nobody?"+v.Encode(), body)) })
	before, records, keys := series(), f.q.count(), f.keys()
	c, err := net.Dial("tcp", f.p.Addr())
	require.NoError(t, err)
	defer c.Close()
	r := bufio.NewReader(c)
	answers := map[string]bool{}
	times := map[bool][]time.Duration{}
	for i := range 10000 {
		near := i%2 == 0 // as long as a name that exists, and with its beginning
		name := strconv.Itoa(i)
		if near {
			name = "car" + string(rune('e'+i%20))
		}
		began := time.Now()
		_, err := io.WriteString(c, "GET /wx/"+name+"?signature=x HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		res, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		times[near] = append(times[near], time.Since(began))
		answers[fmt.Sprint(res.StatusCode, string(b), res.Header.Get("Content-Type"))] = true
	}
	require.Len(t, answers, 1)
	require.Equal(t, before, series(), "what a stranger names is no label")
	require.Equal(t, 10001.0, f.refused()["unknown_account"])
	require.Equal(t, []int{records, keys}, []int{f.q.count(), f.keys()})
	median := func(d []time.Duration) time.Duration { slices.Sort(d); return d[len(d)/2] }
	require.Less(t, median(times[true]), 5*median(times[false]), "no time tells which names are close")
	require.Less(t, median(times[false]), 5*median(times[true]))
}

func TestS15OnlyGetAndPost(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	v, body := f.delivery(text(1, "x"))
	for _, method := range []string{"PUT", "TRACE", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "get", "BREW"} {
		f.requireRefused(405, "method", func() answer {
			got := f.raw(strings.Replace(rawPost("/wx/card?"+v.Encode(), body, "X-Secret: canary\r\n"), "POST", method, 1))
			require.NotContains(t, got.body, "canary", "nothing is traced back")
			require.Equal(t, "GET, POST", got.header.Get("Allow"))
			return got
		})
	}
	target, visits := bait(t)
	for _, request := range []string{
		"CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n", "GET http://" + target + "/ HTTP/1.1\r\nHost: " + target + "\r\n\r\n",
		"POST /ops/v1/pauses HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", "POST /v1/pushes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
		"POST /admin HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.requireRefused(404, "path", func() answer { return f.raw(request) })
	}
	require.Zero(t, visits(), "nothing is tunnelled")
}

func TestS16OldSecretsEndWithTheOverlap(t *testing.T) {
	const oldKey = "pL0oKmNjIuHbVgYtFcXdRzSeAwQ1234567890aZbYcX"
	end := int64(fortTime + 3600)
	f := newFort(t, wechat.ModeSafe, func(_ *proxy.Config, a *proxy.Account) {
		c := &a.Credentials
		c.PrevToken, c.Token = c.Token, "new-token"
		c.PrevEncodingAESKey, c.EncodingAESKey = c.EncodingAESKey, oldKey
		c.EncodingAESKey, c.PrevEncodingAESKey = aesKey, oldKey
		c.PrevUntil = time.Unix(end, 0)
	})
	deliver := func(id int, token, key string) answer {
		raw, err := wechat.DecodeAESKey(key)
		require.NoError(t, err)
		cipher, err := wechat.Encrypt(raw, appID, nil, []byte(text(id, "x")))
		require.NoError(t, err)
		v, body := f.sealed(cipher)
		v.Set("signature", wechat.Signature(token, v.Get("timestamp"), v.Get("nonce")))
		v.Set("msg_signature", wechat.Signature(token, v.Get("timestamp"), v.Get("nonce"), cipher))
		return f.post(v.Encode(), body)
	}
	for i, at := range []int64{fortTime, end - 1} {
		f.now.Store(at)
		f.requireTaken(deliver(10*i, token, aesKey))
		f.requireTaken(deliver(10*i+1, token, oldKey))
		f.requireTaken(deliver(10*i+2, "new-token", oldKey))
		f.requireTaken(deliver(10*i+3, "new-token", aesKey))
	}
	for i, at := range []int64{end, end + 1} {
		f.now.Store(at)
		f.requireRefused(403, "signature", func() answer { return deliver(30, token, aesKey) })
		f.requireRefused(403, "ciphertext", func() answer { return deliver(31, "new-token", oldKey) })
		f.requireTaken(deliver(40+i, "new-token", aesKey))
	}
}
