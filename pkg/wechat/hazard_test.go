package wechat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
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

// Documents that cannot be trusted are kept and can be found again, and nobody
// works them.
func TestQuarantine(t *testing.T) {
	good := textDoc("hi")
	receipt := string(callbackSamples(t)["event-TEMPLATESENDJOBFINISH-success"])
	bom := "\xef\xbb\xbf"
	for name, c := range map[string]struct {
		doc, openid string
		reason      Reason
	}{
		"empty":             {"", "", QuarantineNotXML},
		"json":              {`{"ToUserName":"x"}`, "", QuarantineNotXML},
		"nul bytes":         {strings.Repeat("\x00", 1000), "", QuarantineNotXML},
		"doctype":           {`<!DOCTYPE x SYSTEM "file:///etc/passwd">` + good, sampleOpenID, QuarantineDoctype},
		"doctype, declared": {`<?xml version="1.0"?> <!doctype x [<!ENTITY x SYSTEM "http://127.0.0.1/">]>` + good, sampleOpenID, QuarantineDoctype},
		"billion laughs":    {`<!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><xml>&b;</xml>`, "", QuarantineDoctype},
		"gbk":               {`<?xml version="1.0" encoding="GBK"?>` + good, sampleOpenID, QuarantineEncoding},
		"utf-16":            {"\xff\xfe<\x00x\x00", "", QuarantineEncoding},
		"other root":        {"<soap>" + good + "</soap>", "", QuarantineNotXML},
		"root attribute":    {strings.Replace(good, "<xml>", `<xml xmlns="urn:x">`, 1), "", QuarantineNotXML},
		"attribute":         {strings.Replace(good, "<MsgType>", `<MsgType a="b">`, 1), "", QuarantineStructure},
		"prefix":            {strings.Replace(good, "<MsgType>", `<w:MsgType>`, 1), "", QuarantineStructure},
		"comment":           {strings.Replace(good, "<MsgType>", `<!-- x --><MsgType>`, 1), "", QuarantineStructure},
		"instruction":       {strings.Replace(good, "<MsgType>", `<?php x ?><MsgType>`, 1), "", QuarantineStructure},
		"stray text":        {strings.Replace(good, "<MsgType>", `x<MsgType>`, 1), "", QuarantineStructure},
		"crossed":           {strings.Replace(good, "</MsgType>", `</MsgTyp>`, 1), "", QuarantineStructure},
		"cut in header":     {good[:40], "", QuarantineTruncated},
		"cut in text":       {good[:strings.Index(good, "hi")], sampleOpenID, QuarantineTruncated},
		"cut at the root":   {strings.TrimSuffix(good, "</xml>"), sampleOpenID, QuarantineTruncated},
		"second document":   {receipt + receipt, sampleOpenID, QuarantineStructure},
		"trailing text":     {good + "x", sampleOpenID, QuarantineStructure},
		"no sender":         {strings.Replace(good, "FromUserName", "Sender", 2), "", QuarantineHeader},
		"odd sender":        {strings.Replace(good, sampleOpenID, "../../x", 1), "", QuarantineHeader},
		"long sender":       {strings.Replace(good, sampleOpenID, strings.Repeat("o", 65), 1), "", QuarantineHeader},
		"sender with CR LF": {strings.Replace(good, sampleOpenID, "a\r\nb", 1), "", QuarantineHeader},
		"nested sender":     {strings.Replace(strings.Replace(good, "<FromUserName>", "<A><FromUserName>", 1), "</FromUserName>", "</FromUserName></A>", 1), "", QuarantineHeader},
		"negative time":     {strings.Replace(good, "1893456001", "-1", 1), "", QuarantineHeader},
		"exponent time":     {strings.Replace(good, "1893456001", "1e9", 1), "", QuarantineHeader},
		"long time":         {strings.Replace(good, "1893456001", strings.Repeat("9", 30), 1), "", QuarantineHeader},
		"arabic time":       {strings.Replace(good, "1893456001", "٣٤", 1), "", QuarantineHeader},
		"no type":           {strings.Replace(good, "MsgType", "Type", 2), "", QuarantineHeader},
		"event without one": {strings.Replace(good, "[text]", "[event]", 1), "", QuarantineHeader},
		"header behind text": {"<xml><Content><![CDATA[x]]></Content>" +
			strings.TrimPrefix(strings.Replace(good, "<Content><![CDATA[hi]]></Content>", "", 1), "<xml>"), sampleOpenID, QuarantineHeader},
		"other openid": {good, victim, QuarantineSender},
		"two senders, no openid": {strings.Replace(good, "<CreateTime>", "<FromUserName>"+victim+"</FromUserName><CreateTime>", 1),
			"", QuarantineSender},
		"long id":            {strings.Replace(good, "23847650019283746", strings.Repeat("1", 65), 1), "", QuarantineMsgID},
		"id of two words":    {strings.Replace(good, "23847650019283746", "1 2", 1), "", QuarantineMsgID},
		"nested":             {"<xml>" + strings.Repeat("<a>", 20000), "", QuarantineLimits},
		"depth 9":            {nested(8), "", QuarantineLimits},
		"501 elements":       {"<xml>" + strings.Repeat("<a>1</a>", 501) + "</xml>", "", QuarantineLimits},
		"receipt without id": {strings.Replace(receipt, "<MsgID>4102938475610293840</MsgID>", "", 1), "", QuarantineReceipt},
		"receipt with two":   {strings.Replace(receipt, "<Status>", "<MsgID>1</MsgID><Status>", 1), "", QuarantineReceipt},
		"receipt, two words": {strings.Replace(receipt, "</xml>", "<Status>success</Status></xml>", 1), "", QuarantineReceipt},
		"byte order mark":    {bom + bom + good, "", QuarantineNotXML},
	} {
		t.Run(name, func(t *testing.T) {
			m := parse(t, c.doc, c.openid)
			require.True(t, m.Quarantined)
			require.Equal(t, c.reason, m.Reason)
			require.False(t, m.IsReceipt())
			require.NotEqual(t, victim, m.FromUserName)
			ids := m.Identities("bank")
			require.Len(t, ids, 1)
			require.Regexp(t, `^raw:bank:[0-9a-f]{64}$`, ids[0].Text)
			require.NotEqual(t, ids, parse(t, c.doc+" ", c.openid).Identities("bank"))
			m.MayAnswer()
			m.Fields()
		})
	}
}

// nested is a document with n levels below the root.
func nested(n int) string {
	head := strings.TrimSuffix(textDoc(""), "</xml>")
	return head + strings.Repeat("<a>", n) + "1" + strings.Repeat("</a>", n) + "</xml>"
}

// The limits are where they are said to be.
func TestLimitsAreExact(t *testing.T) {
	require.False(t, parse(t, nested(7), "").Quarantined, "8 levels with the root are allowed")
	doc := strings.TrimSuffix(textDoc(""), "</xml>")
	require.False(t, parse(t, doc+strings.Repeat("<a/>", 494)+"</xml>", "").Quarantined, "500 elements are allowed")
	require.True(t, parse(t, doc+strings.Repeat("<a/>", 495)+"</xml>", "").Quarantined)

	full := textDoc(strings.Repeat("a", MaxBody-len(textDoc(""))))
	require.Len(t, parse(t, full, "").Content, MaxBody-len(textDoc("")))
	_, err := ParseMessage([]byte(full+" "), "")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
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

// A subscription report has one identity and one report per List item.
func TestSubscriptionReceiptPerItem(t *testing.T) {
	doc := strings.Replace(string(callbackSamples(t)["event-subscribe_msg_sent_event"]), "</List>",
		"</List><List><TemplateId>T2</TemplateId><MsgID>7</MsgID><ErrorCode>43101</ErrorCode><ErrorStatus>refused</ErrorStatus></List>"+
			"<List><TemplateId>T3</TemplateId><ErrorCode>x</ErrorCode></List>", 1)
	m := parse(t, doc, sampleOpenID)
	require.False(t, m.Quarantined, m.Reason)
	require.Len(t, m.Identities("bank"), 3)
	require.Equal(t, "7", m.Identities("bank")[1].MsgID)
	items := m.Receipts()
	require.Len(t, items, 3)
	require.Equal(t, []Outcome{OutcomeDelivered, OutcomeRefused, OutcomeUnknown},
		[]Outcome{items[0].Outcome, items[1].Outcome, items[2].Outcome})
}

// The documentation named the wrapper of the change event differently once.
func TestEitherWrapper(t *testing.T) {
	doc := string(callbackSamples(t)["event-subscribe_msg_change_event"])
	want := parse(t, doc, "").Choices()
	require.Len(t, want, 1)
	require.False(t, want[0].Accepted)
	require.Equal(t, want, parse(t, strings.ReplaceAll(doc, "SubscribeMsgChangeEvent", "SubscribeMsgPopupEvent"), "").Choices())
	bare := strings.NewReplacer("<SubscribeMsgChangeEvent>", "", "</SubscribeMsgChangeEvent>", "").Replace(doc)
	require.Equal(t, want, parse(t, bare, "").Choices())
}

func TestParseStatus(t *testing.T) {
	for status, want := range map[string]struct {
		outcome Outcome
		reason  string
	}{
		"success":               {OutcomeDelivered, ""},
		" Success \n":           {OutcomeDelivered, ""},
		"failed:user block":     {OutcomeRefused, "user block"},
		"failed: user block":    {OutcomeRefused, "user block"},
		"failed: system failed": {OutcomeFailed, "system failed"},
		"FAILED:Freq Limit":     {OutcomeFailed, "Freq Limit"},
		"failed:a:b":            {OutcomeFailed, "a:b"},
		"failed":                {OutcomeFailed, ""},
		"success:not":           {OutcomeUnknown, "success:not"},
		"successful":            {OutcomeUnknown, "successful"},
		"":                      {OutcomeUnknown, ""},
		"pending review":        {OutcomeUnknown, "pending review"},
	} {
		outcome, reason := ParseStatus(status)
		require.Equal(t, want.outcome, outcome, status)
		require.Equal(t, want.reason, reason, status)
	}
	_, reason := ParseStatus("failed:" + strings.Repeat("长", 1000))
	require.LessOrEqual(t, len(reason), maxReason)
	require.True(t, isClean(reason))
}

func TestParseMassStatus(t *testing.T) {
	for status, want := range map[string]MassStatus{
		"send success": {OutcomeDelivered, 0, "send success"},
		"sendsuccess":  {OutcomeDelivered, 0, "sendsuccess"},
		"send fail":    {OutcomeFailed, 0, "send fail"},
		"err(30003)":   {OutcomeFailed, 30003, "err(30003)"},
		"err(x)":       {OutcomeUnknown, 0, "err(x)"},
		"":             {OutcomeUnknown, 0, ""},
	} {
		require.Equal(t, want, ParseMassStatus(status))
	}
	require.NotEmpty(t, MassMeaning(30003))
	require.Empty(t, MassMeaning(1))
}
