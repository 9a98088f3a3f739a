package wechat

import (
	"bytes"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzParseQuery(f *testing.F) {
	f.Add("signature=" + strings.Repeat("a", 40) + "&timestamp=1893456001&nonce=778899001&openid=oZx81wQk2Lr7nVb0TtYpSdUeGhA4&encrypt_type=aes&msg_signature=" + strings.Repeat("0", 40))
	f.Add("echostr=7240183956217740158&nonce=%41")
	f.Add("a=1;b=2&a=%zz&&=")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := ParseQuery(raw)
		if err != nil {
			requireRefusal(t, err, ReasonQuery)
			return
		}
		for _, s := range []string{q.Signature, q.MsgSignature} {
			if s != "" && !isSignature(s) {
				t.Fatalf("signature %q from %q", s, raw)
			}
		}
		if q.OpenID != "" && !IsOpenID(q.OpenID) {
			t.Fatalf("openid %q from %q", q.OpenID, raw)
		}
		if q.Seconds() < 0 || strings.ContainsAny(q.Nonce+q.EchoStr+q.Timestamp, "\r\n\x00") {
			t.Fatalf("%+v from %q", q, raw)
		}
	})
}

// Whatever the body holds: only what was signed and encrypted comes out.
func FuzzOpen(f *testing.F) {
	v, err := NewVerifier(sampleCredentials(ModeSafe))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"envelope-safe-text", "envelope-compat-receipt"} {
		q, err := ParseQuery(sampleQuery(f, name+".xml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(callbackSamples(f)[name], q.MsgSignature, q.Timestamp, q.Nonce)
	}
	f.Add([]byte("<xml><Encrypt><![CDATA[]]></Encrypt></xml>"), strings.Repeat("0", 40), "1", "1")
	f.Fuzz(func(t *testing.T, body []byte, msgSignature, timestamp, nonce string) {
		q := Query{Signature: Signature(sampleCredentials(ModeSafe).Token, timestamp, nonce), Timestamp: timestamp, Nonce: nonce, MsgSignature: msgSignature}
		opened, err := v.Open(q, body)
		// The same body with a right signature over its first choice of
		// ciphertext: it gets as far as decrypting.
		if texts := encryptTexts(body); len(texts) > 0 && timestamp != "" && nonce != "" {
			signed := q
			signed.MsgSignature = Signature(sampleCredentials(ModeSafe).Token, timestamp, nonce, string(texts[0]))
			var r *Refusal
			if _, err := v.Open(signed, body); errors.As(err, &r) && r.Reason == ReasonSignature {
				t.Fatalf("a right signature was refused for %q", body)
			}
		}
		if err != nil {
			if err.Error() != "callback refused" {
				t.Fatalf("refusal says %q", err)
			}
			return
		}
		if !opened.Encrypted || bytes.Contains(body, opened.Plain) && len(opened.Plain) > 64 {
			t.Fatalf("plain text came from the readable part of %q", body)
		}
	})
}

func FuzzDecrypt(f *testing.F) {
	key, err := DecodeAESKey(sampleCredentials(ModeSafe).EncodingAESKey)
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range loadVectors(f) {
		f.Add(v.Encrypt, []byte(v.Plaintext))
	}
	f.Fuzz(func(t *testing.T, text string, msg []byte) {
		if plain, err := Decrypt(key, ourAppID, text); err == nil {
			if again, err := Encrypt(key, ourAppID, make([]byte, randomLength), plain); err != nil || again == "" {
				t.Fatalf("what was decrypted cannot be encrypted: %v", err)
			}
		} else if !errors.Is(err, ErrCiphertext) {
			t.Fatalf("error %v", err)
		}
		// The random part is fixed, so that equal inputs take equal ways.
		sealed, err := Encrypt(key, ourAppID, make([]byte, randomLength), msg)
		if err != nil {
			return
		}
		if plain, err := Decrypt(key, ourAppID, sealed); err != nil || !bytes.Equal(plain, msg) {
			t.Fatalf("round trip of %q gives %q, %v", msg, plain, err)
		}
	})
}

// oracle is the part of a message that encoding/xml is asked about.
type oracle struct {
	XMLName      xml.Name `xml:"xml"`
	ToUserName   []string
	FromUserName []string
	MsgType      []string
	Content      []string
	MsgId        []string
	Any          []struct {
		XMLName xml.Name
	} `xml:",any"`
}

// FuzzParseMessage reads any document and holds the result against what must
// always be true, and against encoding/xml wherever both accept it.
func FuzzParseMessage(f *testing.F) {
	for name, body := range callbackSamples(f) {
		f.Add(samplePlain(f, name+".xml", body), sampleOpenID)
	}
	for _, typed := range userTexts {
		f.Add([]byte(textDoc(typed)), "")
	}
	f.Add([]byte(`<?xml version="1.0" encoding="utf-8"?><xml><a>&lt;&#65;<![CDATA[b]]>c</a></xml>`), "o")
	f.Fuzz(func(t *testing.T, doc []byte, openid string) {
		m, err := ParseMessage(doc, openid)
		if err != nil {
			if len(doc) <= MaxBody {
				t.Fatal(err)
			}
			return
		}
		checkMessage(t, m, openid)
		if !m.Quarantined && !m.Ambiguous {
			compareWithOracle(t, doc, m)
		}
	})
}

func checkMessage(t *testing.T, m *Message, openid string) {
	if len(m.Identities("a")) == 0 {
		t.Fatal("no identity")
	}
	for _, id := range m.Identities("a") {
		if id.Text == "" || !isPrintable(id.Text, 1<<20) || strings.ContainsAny(id.Text, " {}/*") {
			t.Fatalf("identity %q", id.Text)
		}
	}
	for path, v := range m.Fields() {
		if !isClean(v) || !utf8.ValidString(path) {
			t.Fatalf("field %q is %q", path, v)
		}
	}
	m.MayAnswer()
	m.Pictures()
	m.ScanCode()
	m.Place()
	if m.Quarantined != (m.Reason != "") {
		t.Fatalf("quarantined %v for %q", m.Quarantined, m.Reason)
	}
	if m.Quarantined {
		if m.IsReceipt() || m.Receipts() != nil {
			t.Fatal("a quarantined message is a receipt")
		}
		return
	}
	if !IsOpenID(m.FromUserName) || openid != "" && m.FromUserName != openid && m.Event != EventMassSent && m.Event != EventPublished {
		t.Fatalf("sender %q, query %q", m.FromUserName, openid)
	}
	if m.IsReceipt() && len(m.Receipts()) != len(m.Identities("a")) {
		t.Fatal("reports and identities differ in number")
	}
	if m.MsgType != TypeEvent && (m.Event != "" || m.IsReceipt()) {
		t.Fatal("a message became an event")
	}
}

// compareWithOracle asks encoding/xml for the same document. Where user text
// holds "]]>" the two differ on purpose, which is what this package is for.
func compareWithOracle(t *testing.T, doc []byte, m *Message) {
	if strings.Contains(m.Content, "]]>") || strings.Contains(m.Content, "]]]]><![CDATA[>") || strings.ContainsAny(string(doc), "\r") {
		return
	}
	for _, v := range m.Fields() {
		if strings.Contains(v, "]]>") {
			return
		}
	}
	var o oracle
	if xml.Unmarshal(doc, &o) != nil {
		return
	}
	check := func(name, got string, all []string, pick int) {
		if len(all) == 0 {
			if got != "" {
				t.Fatalf("%s is %q, encoding/xml has none in %q", name, got, doc)
			}
			return
		}
		if want := all[(pick+len(all))%len(all)]; strings.TrimSpace(clean(want)) != strings.TrimSpace(got) {
			t.Fatalf("%s is %q, encoding/xml reads %q in %q", name, got, want, doc)
		}
	}
	check("FromUserName", m.FromUserName, o.FromUserName, 0)
	check("ToUserName", m.ToUserName, o.ToUserName, 0)
	check("MsgType", m.MsgType, o.MsgType, 0)
	if m.MsgType == TypeText {
		check("Content", m.Content, o.Content, 0)
	}
	if m.MsgType != TypeEvent && len(o.MsgId) > 0 && strings.TrimSpace(o.MsgId[len(o.MsgId)-1]) != "" {
		check("MsgId", m.MsgID, o.MsgId, -1)
	}
}

// FuzzUserText types anything into a text message: it stays text.
func FuzzUserText(f *testing.F) {
	for _, typed := range userTexts {
		f.Add(typed)
	}
	f.Fuzz(func(t *testing.T, typed string) {
		doc := textDoc(typed)
		if len(doc) > MaxBody {
			return
		}
		m := parse(t, doc, "")
		if m.Quarantined {
			t.Fatalf("quarantined for %s: %q", m.Reason, typed)
		}
		requireOwnMessage(t, m)
		if want := clean(strings.ReplaceAll(typed, splitCDATA, "]]>")); m.Content != want {
			t.Fatalf("content %q, want %q", m.Content, want)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	files, err := filepath.Glob("testdata/api/*")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(200, b)
	}
	f.Add(502, []byte("null"))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		var send sendAnswer
		if err := judge(APICustomSend, status, body, &send); err == nil {
			if trimmed := bytes.TrimSpace(bytes.TrimPrefix(body, byteOrder)); len(trimmed) == 0 || trimmed[0] != '{' {
				t.Fatalf("%q passes for a success", body)
			}
			if !isMsgID(string(send.MsgID)) || send.MsgID == "0" {
				t.Fatalf("message id %q", send.MsgID)
			}
		} else if text := err.Error(); len(text) > 300 || !isClean(text) {
			t.Fatalf("error %q", text)
		}
		var token tokenAnswer
		if got, err := token.token(APIToken, judge(APIToken, status, body, &token)); err == nil && (got.Token == "" || got.Life <= 0) {
			t.Fatalf("token %+v", got)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	for _, s := range []string{"success", "failed:user block", "failed: system failed", "failed:freq limit", "send success", "err(30003)", "err(-1)", "sendfail"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, status string) {
		outcome, reason := ParseStatus(status)
		if outcome == OutcomeDelivered != strings.EqualFold(strings.TrimSpace(status), "success") {
			t.Fatalf("%q is %s", status, outcome)
		}
		mass := ParseMassStatus(status)
		if len(reason) > maxReason || len(mass.Text) > maxReason || mass.Code != 0 && mass.Outcome != OutcomeFailed {
			t.Fatalf("%q gives %q and %+v", status, reason, mass)
		}
		if utf8.ValidString(status) && !utf8.ValidString(reason) {
			t.Fatalf("a character of %q was cut in two: %q", status, reason)
		}
	})
}
