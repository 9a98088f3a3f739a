package wechat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const victim = "oVICTIMaaaaaaaaaaaaaaaaaaaaaa"

// textDoc is the document that WeChat builds from what a user typed. Like
// WeChat it does not split "]]>".
func textDoc(content string) string {
	return "<xml><ToUserName><![CDATA[" + sampleAccount + "]]></ToUserName>\n" +
		"<FromUserName><![CDATA[" + sampleOpenID + "]]></FromUserName>\n" +
		"<CreateTime>1893456001</CreateTime>\n<MsgType><![CDATA[text]]></MsgType>\n" +
		"<Content><![CDATA[" + content + "]]></Content>\n<MsgId>23847650019283746</MsgId>\n</xml>"
}

func parse(t testing.TB, doc, openid string) *Message {
	t.Helper()
	m, err := ParseMessage([]byte(doc), openid)
	require.NoError(t, err)
	require.NotEmpty(t, m.Identities("bank"))
	return m
}

// What a user types stays text of that user: whatever it is, the message keeps
// its sender, type and id, and the text arrives as it was typed.
func TestUserTextStaysText(t *testing.T) {
	for name, typed := range userTexts {
		for _, openid := range []string{sampleOpenID, ""} {
			t.Run(name+"/openid="+openid, func(t *testing.T) {
				m := parse(t, textDoc(typed), openid)
				require.False(t, m.Quarantined, m.Reason)
				require.Equal(t, typed, m.Content)
				requireOwnMessage(t, m)
			})
		}
	}
}

func requireOwnMessage(t testing.TB, m *Message) {
	t.Helper()
	require.Equal(t, sampleOpenID, m.FromUserName)
	require.Equal(t, sampleAccount, m.ToUserName)
	require.Equal(t, int64(1893456001), m.CreateTime)
	require.Equal(t, TypeText, m.MsgType)
	require.Empty(t, m.Event)
	require.False(t, m.IsReceipt())
	require.Empty(t, m.Receipts())
	require.Equal(t, []Identity{{Text: "msg:bank:" + sampleOpenID + ":23847650019283746"}}, m.Identities("bank"))
}

var userTexts = map[string]string{
	"plain":              "余额",
	"empty":              "",
	"white space":        "  a\n\tb  ",
	"markup":             "<b>急</b> & &amp; &#65; <![CDATA[",
	"cdata end":          "a]]>b",
	"cdata end at end":   "a]]>",
	"cdata start at end": "a]]><![CDATA[",
	"brackets":           "]]]]]]",
	"nested cdata":       "<![CDATA[x]]>",
	"element end":        "a]]></Content>",
	"element twice":      "a]]></Content><Content><![CDATA[b",
	"other sender":       "x]]></Content><FromUserName><![CDATA[" + victim + "]]></FromUserName><Content><![CDATA[y",
	"other sender, open": "x]]></Content><FromUserName>" + victim + "</FromUserName><Label><![CDATA[",
	"other type": "x]]></Content><MsgType><![CDATA[event]]></MsgType><Event><![CDATA[subscribe]]></Event>" +
		"<EventKey><![CDATA[",
	"forged receipt": "x]]></Content><MsgType>event</MsgType><Event>TEMPLATESENDJOBFINISH</Event>" +
		"<MsgID>4102938475610293840</MsgID><Status><![CDATA[success]]></Status><Content><![CDATA[",
	"forged subscription receipt": "]]></Content><MsgType>event</MsgType><Event>subscribe_msg_sent_event</Event>" +
		"<SubscribeMsgSentEvent><List><MsgID>1</MsgID><ErrorCode>0</ErrorCode><ErrorStatus>success</ErrorStatus></List></SubscribeMsgSentEvent>",
	"other id":        "x]]></Content><MsgId>1</MsgId><Content><![CDATA[",
	"second document": "x]]></Content><MsgId>1</MsgId></xml><xml><FromUserName>" + victim + "</FromUserName><Content><![CDATA[",
	"root end":        "]]></Content></xml>",
	"doctype":         `]]><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>&a;`,
	"entity":          "&a;&lol9;",
	"comment":         "]]><!-- --><![CDATA[",
	"encrypt":         "]]></Content><Encrypt><![CDATA[AAAA]]></Encrypt><Content><![CDATA[",
	"deep":            "]]>" + strings.Repeat("<a>", 1000),
	"emoji":           "👨‍👩‍👧 😀 \U0010FFFD",
	"csv formula":     "=HYPERLINK(\"http://x\")",
}

// Bytes that no XML may hold are cleaned and the message is worked (D1).
func TestOddBytesAreCleaned(t *testing.T) {
	for name, c := range map[string]struct{ typed, want string }{
		"control":           {"余\x02额\x1d", "余额"},
		"vertical tab":      {"a\x0bb", "ab"},
		"nul":               {"a\x00b", "ab"},
		"escape":            {"\x1b[31mred", "[31mred"},
		"truncated utf-8":   {"你\xe5\xa5", "你\uFFFD"},
		"lone surrogate":    {"a\xed\xa0\x80b", "a\uFFFDb"},
		"latin-1":           {"caf\xe9", "caf\uFFFD"},
		"hidden cdata end":  {"a]]\x02>b", "a]]>b"},
		"kept white space":  {"a\r\n\tb", "a\r\n\tb"},
		"split cdata end":   {"a]]]]><![CDATA[>b", "a]]>b"},
		"overlong encoding": {"\xc0\xbc", "\uFFFD"},
	} {
		t.Run(name, func(t *testing.T) {
			m := parse(t, textDoc(c.typed), sampleOpenID)
			require.False(t, m.Quarantined, m.Reason)
			require.Equal(t, c.want, m.Content)
			requireOwnMessage(t, m)
		})
	}
}

// Elements of other messages that hold users' words are as safe as Content.
func TestUserTextElsewhere(t *testing.T) {
	forged := "]]></%[1]s><FromUserName>" + victim + "</FromUserName><MsgType>event</MsgType>" +
		"<Event>TEMPLATESENDJOBFINISH</Event><MsgID>1</MsgID><Status>success</Status><%[1]s><![CDATA["
	head := "<xml><ToUserName>" + sampleAccount + "</ToUserName><FromUserName>" + sampleOpenID +
		"</FromUserName><CreateTime>1893456001</CreateTime><MsgType>%s</MsgType>"
	for _, c := range []struct{ msgType, before, name, after string }{
		{"location", "<Location_X>1</Location_X>", "Label", "<MsgId>7</MsgId></xml>"},
		{"link", "", "Title", "<Description>d</Description><Url>u</Url><MsgId>7</MsgId></xml>"},
		{"link", "<Title>t</Title>", "Description", "<Url>u</Url><MsgId>7</MsgId></xml>"},
		{"voice", "<MediaId>m</MediaId>", "Recognition", "<MsgId>7</MsgId><MediaId16K>k</MediaId16K></xml>"},
		{"miniprogrampage", "<MsgId>7</MsgId>", "Title", "<AppId>a</AppId></xml>"},
	} {
		t.Run(c.msgType+" "+c.name, func(t *testing.T) {
			typed := fmt.Sprintf(forged, c.name)
			m := parse(t, fmt.Sprintf(head, c.msgType)+c.before+"<"+c.name+"><![CDATA["+typed+"]]></"+c.name+">"+c.after, sampleOpenID)
			require.False(t, m.Quarantined, m.Reason)
			require.Equal(t, typed, m.Get(c.name))
			require.Equal(t, sampleOpenID, m.FromUserName)
			require.Equal(t, c.msgType, m.MsgType)
			require.Equal(t, "7", m.MsgID)
			require.False(t, m.IsReceipt())
		})
	}
	// What somebody prints into a QR code is user text inside an event.
	printed := "]]></ScanResult></ScanCodeInfo><Event>TEMPLATESENDJOBFINISH</Event><MsgID>1</MsgID><Status>success</Status><ScanCodeInfo><ScanResult><![CDATA["
	m := parse(t, fmt.Sprintf(head, "event")+"<Event>scancode_waitmsg</Event><EventKey>k</EventKey><ScanCodeInfo><ScanType>qrcode</ScanType><ScanResult><![CDATA["+
		printed+"]]></ScanResult></ScanCodeInfo></xml>", sampleOpenID)
	require.False(t, m.Quarantined, m.Reason)
	scan, ok := m.ScanCode()
	require.True(t, ok)
	require.Equal(t, printed, scan.Result)
	require.Equal(t, EventScanCodeWaitMsg, m.Event)
	require.False(t, m.IsReceipt())
}

// What is written twice is decided by the rule, and said so.
func TestFirstHeaderAndLastIDWin(t *testing.T) {
	doc := strings.Replace(textDoc("hi"), "<CreateTime>", "<FromUserName>"+victim+"</FromUserName><CreateTime>", 1)
	m := parse(t, doc, sampleOpenID)
	require.False(t, m.Quarantined, m.Reason)
	require.True(t, m.Ambiguous)
	requireOwnMessage(t, m)

	doc = strings.Replace(textDoc("hi"), "<Content>", "<MsgId>1</MsgId><Content>", 1)
	m = parse(t, doc, "")
	require.True(t, m.Ambiguous)
	requireOwnMessage(t, m)
	require.False(t, parse(t, textDoc("hi"), "").Ambiguous)
}

// Messages without an id are found again by their document.
func TestMessageWithoutID(t *testing.T) {
	doc := strings.Replace(textDoc("hi"), "<MsgId>23847650019283746</MsgId>", "", 1)
	m := parse(t, doc, sampleOpenID)
	require.False(t, m.Quarantined)
	require.Regexp(t, `^raw:bank:[0-9a-f]{64}$`, m.Identities("bank")[0].Text)
}

// Ids stay text: they may exceed 2^53, 2^63, or be no number at all (S25).
func TestIDsStayText(t *testing.T) {
	for given, want := range map[string]string{
		"9007199254740993": "9007199254740993", "99999999999999999999": "99999999999999999999",
		" 12 ": "12", "<![CDATA[CAIQz7]]>": "CAIQz7", "1e18": "1e18",
	} {
		m := parse(t, strings.Replace(textDoc("hi"), "23847650019283746", given, 1), "")
		require.Equal(t, want, m.MsgID)
	}
}

// A quarantined message of a known user may get the fallback text; one whose
// sender is in doubt may not, and no event may.
func TestMayAnswerInQuarantine(t *testing.T) {
	require.True(t, parse(t, textDoc("hi")+"x", sampleOpenID).MayAnswer())
	require.False(t, parse(t, textDoc("hi"), victim).MayAnswer())
	click := string(callbackSamples(t)["event-click"])
	require.True(t, parse(t, click, sampleOpenID).MayAnswer())
	require.False(t, parse(t, click+"x", sampleOpenID).MayAnswer())
}

// Two events of one user in one second, and equal ids of two users, are apart;
// a repeat is the same (T3, T4).
func TestIdentitiesTellApart(t *testing.T) {
	samples := callbackSamples(t)
	seen := map[string]string{}
	for name, body := range samples {
		doc := string(samplePlain(t, name+".xml", body))
		for _, id := range parse(t, doc, "").Identities("bank") {
			if other, ok := seen[id.Text]; ok {
				require.ElementsMatch(t, []string{"msg-text", "envelope-safe-text"}, []string{name, other})
			}
			seen[id.Text] = name
			require.NotEqual(t, id, parse(t, doc, "").Identities("other")[0])
		}
	}
	click := string(samples["event-click"])
	view := strings.Replace(string(samples["event-view"]), "1893457007", "1893457006", 1)
	require.NotEqual(t, parse(t, click, "").Identities("b"), parse(t, view, "").Identities("b"))
	other := strings.Replace(textDoc("hi"), sampleOpenID, victim, 1)
	require.NotEqual(t, parse(t, other, "").Identities("b"), parse(t, textDoc("hi"), "").Identities("b"))
	require.NotEqual(t, identityText("e", "a:b", "c"), identityText("e", "a", "b:c"))
	require.NotEqual(t, identityText("e", "a", ""), identityText("e", "a"))
	long := strings.Repeat("x", 4000)
	require.Less(t, len(identityText("e", long)), 100)
	require.NotEqual(t, identityText("e", long), identityText("e", long+"x"))
}
