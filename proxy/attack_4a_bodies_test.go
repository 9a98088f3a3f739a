package proxy_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
	"tidegate/proxy"
)

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
