package wechat

import "testing"

func BenchmarkParseMessage(b *testing.B) {
	for _, name := range []string{"msg-text", "event-click", "event-TEMPLATESENDJOBFINISH-success", "event-subscribe_msg_popup_event"} {
		doc := callbackSamples(b)[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				m, err := ParseMessage(doc, sampleOpenID)
				if err != nil || m.Quarantined {
					b.Fatal(err, m.Reason)
				}
			}
		})
	}
}

func BenchmarkIdentities(b *testing.B) {
	m := parse(b, textDoc("hi"), sampleOpenID)
	b.ReportAllocs()
	for b.Loop() {
		m.Identities("bank")
	}
}

func BenchmarkOpen(b *testing.B) {
	c := sampleCredentials(ModeSafe)
	c.PrevToken, c.PrevEncodingAESKey = "previous", "pL0oKmNjIuHbVgYtFcXdRzSeAwQ1234567890aZbYcX"
	v, err := NewVerifier(c)
	if err != nil {
		b.Fatal(err)
	}
	body, raw := callbackSamples(b)["envelope-safe-text"], sampleQuery(b, "envelope-safe-text.xml")
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		q, err := ParseQuery(raw)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := v.Open(q, body); err != nil {
			b.Fatal(err)
		}
	}
}
