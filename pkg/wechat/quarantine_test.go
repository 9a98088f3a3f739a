package wechat

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
)

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
