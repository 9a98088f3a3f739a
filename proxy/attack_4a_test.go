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

func TestS08SameQueryOtherBody(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	other := newFortAt(t, f.redis, wechat.ModePlain)
	receipt := func(id int, status string) string {
		return document("event", fmt.Sprintf("<Event><![CDATA[TEMPLATESENDJOBFINISH]]></Event><MsgID>%d</MsgID><Status><![CDATA[%s]]></Status>", id, status))
	}
	for name, genuine := range map[string]string{"text": text(1, "balance"), "receipt": receipt(11, "failed:system failed"), "quarantined": text(2, "x") + "junk"} {
		v, body := f.delivery(genuine)
		f.requireTaken(f.post(v.Encode(), body))
		for forged, doc := range map[string]string{
			"text": text(999, "transfer everything"), "another user": strings.ReplaceAll(text(999, "x"), openid, "oVICTIMaaaaaaaaaaaaaaaaaaaaaa"),
			"receipt": receipt(12, "success"), "junk": "<xml>", "one byte": body + " ",
		} {
			for _, node := range []*fort{f, other} {
				node.requireRefused(403, "nonce", func() answer { return node.post(v.Encode(), doc) })
				require.Zero(t, other.q.count(), "%s after %s", forged, name)
			}
		}
		// The openid beside it is not signed either.
		f.requireRefused(403, "nonce", func() answer { return f.post(with(v, "openid", "oVICTIMaaaaaaaaaaaaaaaaaaaaaa"), body) })
		v.Del("openid")
		f.requireRefused(403, "nonce", func() answer { return f.post(v.Encode(), body) })
	}
	// An address check is signed in the same way: it opens no callback, and no callback opens a check.
	v := f.signed()
	v.Set("echostr", "123")
	got := f.raw("GET /wx/card?" + v.Encode() + " HTTP/1.1\r\nHost: x\r\n\r\n")
	require.Equal(t, "123", got.body)
	v.Del("echostr")
	f.requireRefused(403, "nonce", func() answer { return f.post(v.Encode(), text(998, "x")) })
	f.requireTaken(other.deliver(text(3, "a fresh nonce is welcome")))
}

// A node that cannot ask Redis has its own memory, and loses nothing.
func TestS08SameQueryOtherBodyWhileRedisIsAway(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	before, body := f.delivery(text(1, "x"))
	f.requireTaken(f.post(before.Encode(), body))
	keys := f.keys()
	f.redis.Fail("LOADING Redis is loading the dataset in memory")
	during, more := f.delivery(text(2, "x"))
	f.requireTaken(f.post(during.Encode(), more))
	for _, v := range []url.Values{before, during} {
		records := f.q.count()
		got := f.post(v.Encode(), text(999, "forged"))
		require.Equal(t, 403, got.status)
		require.Equal(t, records, f.q.count())
	}
	require.Equal(t, 2.0, f.refused()["nonce"])
	f.redis.Fail("")
	require.Equal(t, keys, f.keys(), "the fault happened: nothing was written meanwhile")
}

func TestS08PlainModeNeedsAnAddressList(t *testing.T) {
	a := account(wechat.ModePlain)
	a.AllowFrom = nil
	require.ErrorContains(t, a.Validate(), "allow_from")
	require.ErrorContains(t, a.Validate(), "safe mode")
	a.AllowFrom = []string{"203.0.113.0/24"}
	require.NoError(t, a.Validate())
	a.Credentials.Freshness = 2 * time.Hour
	require.ErrorContains(t, a.Validate(), "freshness 2h0m0s")
	a.Credentials.Freshness, a.AllowFrom = 0, []string{"203.0.113.0/240"}
	require.ErrorContains(t, a.Validate(), "no address range")
	safe := account(wechat.ModeSafe)
	safe.AllowFrom, safe.Credentials.Mode = nil, ""
	require.NoError(t, safe.Validate(), "safe is the default and needs none")

	f := newFort(t, wechat.ModePlain, func(_ *proxy.Config, a *proxy.Account) { a.AllowFrom = []string{"203.0.113.0/24"} })
	v, body := f.delivery(text(1, "x"))
	f.requireRefused(403, "address", func() answer { return f.post(v.Encode(), body) })
	f.requireRefused(403, "address", func() answer { return f.raw("GET /wx/card?echostr=1&" + v.Encode() + " HTTP/1.1\r\nHost: x\r\n\r\n") })
	here := newFort(t, wechat.ModePlain, func(_ *proxy.Config, a *proxy.Account) { a.AllowFrom = []string{"127.0.0.1"} })
	here.requireTaken(here.deliver(text(1, "x")))
}

func TestS09OnlyWhatWasDecryptedIsUsed(t *testing.T) {
	safe := newFort(t, wechat.ModeSafe)
	v := safe.signed()
	safe.requireRefused(403, "mode", func() answer { return safe.post(v.Encode(), text(1, "forged")) })
	v, _ = safe.delivery(text(1, "x"))
	safe.requireRefused(403, "mode", func() answer { return safe.post(v.Encode(), text(1, "forged")) })
	v, body := safe.delivery(text(1, "x"))
	v.Del("msg_signature")
	safe.requireRefused(403, "mode", func() answer { return safe.post(v.Encode(), body) })
	safe.requireTaken(safe.deliver(text(1, "x")))

	compatible := newFort(t, wechat.ModeCompatible)
	cipher := encrypt(t, appID, text(2, "genuine"), 1)
	v, _ = compatible.sealed(cipher)
	forged := strings.ReplaceAll(strings.ReplaceAll(text(3, "forged"), openid, "oVICTIMaaaaaaaaaaaaaaaaaaaaaa"), "</xml>", "<Encrypt><![CDATA["+cipher+"]]></Encrypt></xml>")
	compatible.requireTaken(compatible.post(v.Encode(), forged))
	c := compatible.q.callbacks(t)
	require.Len(t, c, 1)
	require.Equal(t, []string{"genuine", openid}, []string{c[0].Content, c[0].OpenID})
	require.NotContains(t, string(c[0].Body), "forged")
	v = compatible.signed()
	compatible.requireRefused(403, "mode", func() answer { return compatible.post(v.Encode(), text(4, "forged")) })
}

func TestS10WhatIsForAnotherAccount(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	for _, id := range []string{"wx0000000000000001", appID + "x", appID[:len(appID)-1], "", strings.ToUpper(appID)} {
		v, body := f.sealed(encrypt(t, id, text(1, "x"), 1))
		f.requireRefused(403, "ciphertext", func() answer { return f.post(v.Encode(), body) })
	}
	for _, mode := range []wechat.Mode{wechat.ModePlain, wechat.ModeSafe} {
		f := newFort(t, mode)
		f.requireRefused(403, "receiver", func() answer { return f.deliver(strings.ReplaceAll(text(1, "x"), ghID, "gh_other")) })
	}
}

func TestS11NoCipherTextIsAnOracle(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	good := encrypt(t, appID, text(1, "x"), 1)
	key, err := wechat.DecodeAESKey(aesKey)
	require.NoError(t, err)
	ciphers := map[string]string{
		"empty": "", "one byte": "AA==", "no base64": "%%%%", "base64 of another alphabet": strings.NewReplacer("+", "-", "/", "_").Replace(good) + "-_",
		"no whole block": "AAAAAAAAAAAAAAAAAAAAAAAA", "cut": good[:len(good)-24], "60 KB of zeros": strings.Repeat("A", 60000),
		"one block": "AAAAAAAAAAAAAAAAAAAAAA==", "white space inside": good[:20] + "\n " + good[20:],
	}
	for name, frame := range map[string]string{
		"padding 0": frameOf(6, "hello", appID, 0), "padding 33": frameOf(5, "hello", appID, 33), "padding 255": frameOf(5, "hello", appID, 255),
		"length past the end": frameOf(5000, "hello", appID, -1), "negative length": frameOf(-1, "hello", appID, -1),
		"length into the id": frameOf(8, "hello", appID, -1), "no frame at all": strings.Repeat("\x10", 16),
	} {
		ciphers[name] = sealFrame(key, []byte(frame))
	}
	answers := map[string]bool{}
	for name, cipher := range ciphers {
		v, body := f.sealed(cipher)
		reason, unsigned := "ciphertext", "signature"
		switch name {
		case "empty", "no base64", "base64 of another alphabet", "white space inside":
			reason, unsigned = "mode", "mode" // there is none: not what a safe account sends
		}
		f.requireRefused(403, reason, func() answer {
			got := f.post(v.Encode(), body)
			got.header.Del("Date")
			answers[fmt.Sprint(got)] = true
			return got
		})
		// Without the signature nothing is decrypted at all.
		f.requireRefused(403, unsigned, func() answer { return f.post(with(v, "msg_signature", strings.Repeat("0", 40)), body) })
	}
	require.Len(t, answers, 1, "status, text and headers do not tell one from another")
	f.requireTaken(f.deliver(text(2, "x")))
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
