package proxy_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

const victim = "oVICTIMaaaaaaaaaaaaaaaaaaaaaa"

// taken delivers a document of an authentic request, which is acknowledged
// whatever it holds (D1), and gives the one record that it made.
func (f *fort) taken(doc string) *wire.Callback {
	f.t.Helper()
	before := f.q.count()
	f.requireTaken(f.deliver(doc))
	require.Equal(f.t, before+1, f.q.count())
	require.Empty(f.t, f.q.in("tidegate.receipts"), "no receipt is ever forged this way")
	c := f.q.callbacks(f.t)
	return c[len(c)-1]
}

// quarantined is taken for what must not be worked: kept raw, and nobody's.
func (f *fort) quarantined(reason wechat.Reason, doc string) *wire.Callback {
	f.t.Helper()
	c := f.taken(doc)
	require.Equal(f.t, string(reason), c.Quarantined)
	require.Equal(f.t, doc, string(c.Body), "the raw document is kept")
	require.NotEqual(f.t, victim, c.OpenID)
	return c
}

// inBothPlaces runs an attack on the envelope, where a stranger could put it and
// it is refused, and in the document that WeChat signed, where it is acknowledged
// and quarantined.
func inBothPlaces(t *testing.T, head string) {
	t.Helper()
	f := newFort(t, wechat.ModeSafe)
	v, body := f.delivery(text(1, "x"))
	f.requireRefused(403, "envelope", func() answer { return f.post(v.Encode(), head+body) })
	c := f.quarantined(wechat.QuarantineDoctype, head+strings.Replace(text(2, "x"), "]]></Content>", "]]>&x;</Content>", 1))
	require.NotContains(t, c.Content, "root:")
	f.requireTaken(f.deliver(text(3, "x")))
}

func TestS17NoDoctypeIsRead(t *testing.T) {
	secret := t.TempDir() + "/secret"
	require.NoError(t, os.WriteFile(secret, []byte("root:canary"), 0o600))
	for _, head := range []string{
		`<!DOCTYPE x SYSTEM "file://` + secret + `">`, `<!DOCTYPE x [<!ENTITY x SYSTEM "file://` + secret + `">]>`,
		`<?xml version="1.0"?><!DOCTYPE xml SYSTEM "x">`, `<!doctype xml>`, "\n\t<!DOCTYPE xml>", "<!-- --><!DOCTYPE xml>",
	} {
		inBothPlaces(t, head)
	}
	f := newFort(t, wechat.ModePlain)
	c := f.quarantined(wechat.QuarantineDoctype, `<!DOCTYPE x [<!ENTITY x SYSTEM "file://`+secret+`">]>`+text(1, "&x;"))
	require.NotContains(t, fmt.Sprint(c), "canary")
}

func TestS18NothingIsFetched(t *testing.T) {
	addr, visits := bait(t)
	for _, head := range []string{
		`<!DOCTYPE x SYSTEM "http://` + addr + `/x.dtd">`, `<!DOCTYPE x PUBLIC "-//W3C//DTD XHTML 1.0//EN" "http://` + addr + `/x.dtd">`,
		`<!DOCTYPE x [<!ENTITY % p SYSTEM "http://` + addr + `/p"> %p;]>`, `<?xml-stylesheet href="http://` + addr + `/x.xsl"?><!DOCTYPE x>`,
	} {
		inBothPlaces(t, head)
	}
	f := newFort(t, wechat.ModePlain)
	c := f.taken(document("image", "<PicUrl>http://"+addr+"/pic</PicUrl><MediaId>m</MediaId><MsgId>5</MsgId>"))
	require.Empty(t, c.Quarantined, "addresses that users send are carried, never called")
	require.Zero(t, visits())
}

func TestS19EntitiesDoNotMultiply(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString(`<!DOCTYPE l [<!ENTITY l0 "ha">`)
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&laughs, `<!ENTITY l%d "%s">`, i, strings.Repeat(fmt.Sprintf("&l%d;", i-1), 10))
	}
	laughs.WriteString("]>")
	quadratic := `<!DOCTYPE l [<!ENTITY a "` + strings.Repeat("a", 30000) + `">]>`
	for name, doc := range map[string]string{
		"billion laughs": laughs.String() + text(1, "&l11;"), "quadratic": quadratic + text(2, strings.Repeat("&a;", 5000)),
		"unknown entities": strings.Replace(text(3, "x"), "<![CDATA[x]]>", strings.Repeat("&a;", 20000), 1),
		"references":       strings.Replace(text(4, "x"), "<![CDATA[x]]>", strings.Repeat("&#x41;", 9000), 1),
	} {
		f := newFort(t, wechat.ModePlain)
		c := f.taken(doc)
		require.Less(t, len(c.Content), 64<<10, name)
		took, used := f.cost(doc)
		harmless, _ := f.cost(text(5, strings.Repeat("a", min(len(doc), 60000))))
		require.Less(t, took, max(5*time.Millisecond, 20*harmless), name)
		require.Less(t, used, uint64(1<<20), name)
	}
}

// cost is the least time and memory that a document takes: the machine may be
// busy with something else.
func (f *fort) cost(doc string) (fastest time.Duration, least uint64) {
	f.t.Helper()
	v, _ := f.delivery(doc)
	for i := range 20 {
		r := httptest.NewRequest(http.MethodPost, "/wx/card?"+v.Encode(), strings.NewReader(doc))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		rec := f.send(r)
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		require.Equal(f.t, 200, rec.Code)
		used := after.TotalAlloc - before.TotalAlloc
		if i == 0 {
			fastest, least = took, used
		}
		fastest, least = min(fastest, took), min(least, used)
	}
	return fastest, least
}

func TestS20LargeBodiesAreRefusedBeforeTheyAreRead(t *testing.T) {
	for _, mode := range []wechat.Mode{wechat.ModePlain, wechat.ModeSafe} {
		f := newFort(t, mode)
		for _, body := range []string{
			strings.Repeat("x", wechat.MaxBody+1),
			"<xml " + strings.Repeat(`a="b" `, 270000) + ">" + text(1, "x"), // 1.6 MB of attributes
		} {
			v := f.signed()
			f.requireRefused(413, "too_large", func() answer { return f.post(v.Encode(), body) })
			v = f.signed()
			f.requireRefused(403, "signature", func() answer { return f.post(with(v, "signature", strings.Repeat("0", 40)), body) })
		}
	}
	f := newFort(t, wechat.ModePlain)
	for range 20 { // a client that sends all before it reads sees the answer, not a reset
		v, big := f.signed(), strings.NewReader(strings.Repeat("x", 1<<20))
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post("http://"+f.p.Addr()+"/wx/card?"+v.Encode(), "text/xml", big)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	}
	full := text(1, "")
	full = strings.Replace(full, "<![CDATA[", "<![CDATA["+strings.Repeat("a", wechat.MaxBody-len(full)), 1)
	require.Len(t, full, wechat.MaxBody)
	f.requireTaken(f.deliver(full))
	require.Equal(t, 1, f.q.count(), "the largest that may come is taken")
}

func TestS21DepthAndElementsAreBounded(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	nested := func(n int) string {
		return strings.TrimSuffix(text(1, ""), "</xml>") + strings.Repeat("<a>", n) + "1" + strings.Repeat("</a>", n) + "</xml>"
	}
	require.Empty(t, f.taken(nested(7)).Quarantined, "8 levels with the root")
	f.quarantined(wechat.QuarantineLimits, nested(8))
	f.quarantined(wechat.QuarantineLimits, nested(5000))
	f.quarantined(wechat.QuarantineLimits, "<xml>"+strings.Repeat("<a>", 20000))
	many := func(n int) string {
		return strings.TrimSuffix(text(2, ""), "</xml>") + strings.Repeat("<a/>", n) + "</xml>"
	}
	require.Empty(t, f.taken(many(494)).Quarantined, "500 elements")
	f.quarantined(wechat.QuarantineLimits, many(495))
	f.quarantined(wechat.QuarantineLimits, many(15000))
	v := f.signed()
	f.requireRefused(413, "too_large", func() answer { return f.post(v.Encode(), many(100000)) })
}

func TestS22NobodyWritesAsAnotherUser(t *testing.T) {
	for _, mode := range []wechat.Mode{wechat.ModePlain, wechat.ModeSafe} {
		f := newFort(t, mode)
		good := text(1, "hi")
		twice := strings.Replace(good, "<CreateTime>", "<FromUserName><![CDATA["+victim+"]]></FromUserName><CreateTime>", 1)
		require.Equal(t, openid, f.taken(twice).OpenID, "the first one, and it is the one of the query string")
		forged := "]]></Content><MsgType><![CDATA[event]]></MsgType><Event><![CDATA[TEMPLATESENDJOBFINISH]]></Event><MsgID>1</MsgID><Status><![CDATA[success]]></Status>" +
			"<FromUserName><![CDATA[" + victim + "]]></FromUserName><Content><![CDATA["
		c := f.taken(text(2, forged))
		require.Equal(t, []string{openid, "text", forged}, []string{c.OpenID, c.MsgType, c.Content}, "what a user types stays text of that user")
		c = f.taken(text(3, "hi") + strings.ReplaceAll(text(4, "hi"), openid, victim))
		require.Equal(t, []string{openid, "text"}, []string{c.OpenID, c.MsgType}, "a second document is more of the first one's text")
		receipt := document("event", "<Event><![CDATA[TEMPLATESENDJOBFINISH]]></Event><MsgID>1</MsgID><Status><![CDATA[success]]></Status>")
		for doc, reason := range map[string]wechat.Reason{
			strings.ReplaceAll(good, "<FromUserName><![CDATA["+openid, "<FromUserName><![CDATA["+victim): wechat.QuarantineSender,
			receipt + receipt: wechat.QuarantineStructure,
			strings.Replace(good, "<xml>", `<xml xmlns="urn:x" xmlns:w="urn:y">`, 1):                                                                 wechat.QuarantineNotXML,
			strings.Replace(good, "<MsgType>", "<w:MsgType>", 1):                                                                                     wechat.QuarantineStructure,
			strings.Replace(strings.Replace(good, "<FromUserName>", "<A><FromUserName>", 1), "</FromUserName>", "</FromUserName></A>", 1):            wechat.QuarantineHeader,
			strings.Replace(receipt, "</xml>", "<Status><![CDATA[failed]]></Status></xml>", 1):                                                       wechat.QuarantineReceipt,
			"<xml><Content><![CDATA[x]]></Content>" + strings.TrimPrefix(strings.Replace(good, "<Content><![CDATA[hi]]></Content>", "", 1), "<xml>"): wechat.QuarantineHeader,
		} {
			f.quarantined(reason, doc)
		}
		require.Empty(t, f.q.in("tidegate.receipts"))
	}
}

func TestS23OddTextIsNeverA5xx(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	for typed, want := range map[string]string{
		"a\x0bb": "ab", "a\x00b": "ab", "caf\xe9": "caf\uFFFD", "a\xed\xa0\x80b": "a\uFFFDb", "你\xe5\xa5": "你\uFFFD", "]]>": "]]>", "a]]>b": "a]]>b",
		"\x1b[31m": "[31m", "\ufeff": "\ufeff", "\u202etxt": "\u202etxt", "": "",
	} {
		c := f.taken(text(f.q.count()+1, typed))
		require.Equal(t, want, c.Content)
		require.True(t, utf8.ValidString(c.Content))
		require.Empty(t, c.Quarantined)
		require.Equal(t, openid, c.OpenID)
	}
	for _, odd := range []string{"\x00\x00", "<xml>", "\xff\xfe", "{}", strings.Repeat("<", 1000)} {
		f.quarantined(quarantineOf(t, odd), odd)
	}
	// One bad among a hundred stops nobody.
	for i := range 100 {
		doc := text(5000+i, "x")
		if i == 50 {
			doc = "\x00" + doc
		}
		f.requireTaken(f.deliver(doc))
	}
}

func quarantineOf(t *testing.T, doc string) wechat.Reason {
	m, err := wechat.ParseMessage([]byte(doc), openid)
	require.NoError(t, err)
	return m.Reason
}

func TestS24OtherEncodingsAreNotPassedOn(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	utf16 := []byte{0xff, 0xfe}
	for _, r := range text(3, "x") {
		utf16 = append(utf16, byte(r), 0)
	}
	for _, doc := range []string{
		`<?xml version="1.0" encoding="GBK"?>` + text(1, "\xc4\xe3\xba\xc3"), `<?xml version="1.0" encoding='utf-7'?>` + text(2, "+ADw-script+AD4-"), string(utf16),
	} {
		c := f.quarantined(wechat.QuarantineEncoding, doc)
		require.True(t, utf8.ValidString(c.Content))
	}
	require.Empty(t, f.taken(`<?xml version="1.0" encoding="UTF-8"?>`+text(4, "x")).Quarantined)
	require.Empty(t, f.taken("\xef\xbb\xbf"+text(5, "x")).Quarantined, "one mark of UTF-8 is no other encoding")
}

func TestS25IdsAreText(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	for given, want := range map[string]string{
		"99999999999999999999": "99999999999999999999", "9007199254740993": "9007199254740993", "1e18": "1e18", " 12 ": "12", "<![CDATA[CAIQz7]]>": "CAIQz7",
		"": "", strings.Repeat("1", 64): strings.Repeat("1", 64), "007": "007",
	} {
		c := f.taken(strings.Replace(text(77, "x"), "<MsgId>77</MsgId>", "<MsgId>"+given+"</MsgId>", 1))
		require.Empty(t, c.Quarantined, given)
		require.Equal(t, want, c.MsgID)
		require.Len(t, c.ID, 23)
	}
	for _, odd := range []string{strings.Repeat("1", 65), "1 2", "a:b", "1\n2"} {
		doc := strings.Replace(text(77, "x"), "<MsgId>77</MsgId>", "<MsgId>"+odd+"</MsgId>", 1)
		if c := f.taken(doc); c.Quarantined == "" {
			require.Equal(t, odd, c.MsgID)
		}
	}
	// Ids that differ after the 53rd bit are different messages.
	n := f.q.count()
	f.requireTaken(f.deliver(text(9007199254740992, "x")))
	f.requireTaken(f.deliver(text(9007199254740994, "x")))
	require.Equal(t, n+2, f.q.count())
}

func TestS27CompressedBodiesAreNotTaken(t *testing.T) {
	f := newFort(t, wechat.ModeSafe)
	for _, coding := range []string{"gzip", "deflate", "br", "zstd", "identity", "gzip, gzip", "x"} {
		v, body := f.delivery(text(1, "x"))
		f.requireRefused(415, "encoding", func() answer {
			return f.raw(rawPost("/wx/card?"+v.Encode(), body, "Content-Encoding: "+coding+"\r\n"))
		})
	}
	f.requireTaken(f.deliver(text(1, "x")))
}

func TestS28AnOpenidSteersNothing(t *testing.T) {
	f := newFort(t, wechat.ModePlain)
	odd := []string{"../../x", "{tag}", "*", "a:b", strings.Repeat("o", 500), strings.Repeat("o", 65), "a\r\nb", "a b", "\x00", "ö", "a}b{", "o'--", "%00"}
	for _, id := range odd {
		v := f.signed()
		f.requireRefused(403, "query", func() answer { return f.post(with(v, "openid", id), text(1, "x")) })
	}
	for i, id := range odd {
		doc := strings.ReplaceAll(text(100+i, "x"), openid, id)
		v, body := f.delivery(doc)
		v.Del("openid")
		f.requireTaken(f.post(v.Encode(), body))
		c := f.q.callbacks(t)
		require.NotEmpty(t, c[len(c)-1].Quarantined, id)
		require.NotEqual(t, id, c[len(c)-1].OpenID, "it becomes the key of nothing")
	}
	// Menu keys and other words of a document are in no key either.
	press := click(1, "*{x}\n../:")
	f.requireTaken(f.deliver(press))
	f.requireTaken(f.deliver(strings.Replace(press, "<CreateTime>1<", "<CreateTime>2<", 1)))
	require.Len(t, f.q.in("tidegate.repeats"), 1, "and still mean what they mean")
}
