package run

import "testing"

// What reading along costs for a callback of the usual size.
func BenchmarkWatched(b *testing.B) {
	request := []byte("POST /wx/card?signature=f464b24fc39322e44b38aa78f5edd27bd1441696&timestamp=1893456001&nonce=190283746&openid=oZx81wQk2Lr7nVb0TtYpSdUeGhA4&encrypt_type=aes&msg_signature=f464b24fc39322e44b38aa78f5edd27bd1441696 HTTP/1.1\r\n" +
		"Host: gate.example\r\nUser-Agent: Mozilla/4.0\r\nAccept: */*\r\nContent-Type: text/xml\r\nPragma: no-cache\r\nConnection: Keep-Alive\r\nX-Forwarded-For: 203.0.113.9\r\nContent-Length: 600\r\n\r\n")
	request = append(request, make([]byte, 600)...)
	c := &watched{maxHeaders: maxHeaders, maxBytes: 8 << 10, length: -1, report: func(string) {}}
	b.ReportAllocs()
	for b.Loop() {
		c.observe(request)
	}
	if c.flaw.Load() != 0 {
		b.Fatal("a flaw in what has none")
	}
}
