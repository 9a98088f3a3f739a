package kafka

import (
	"encoding/binary"
	"net"

	"github.com/IBM/sarama"

	"tidegate/pkg/crash"
)

// watchRequests puts crash points CP3 (produced, unacked) and CP14 (committed)
// where they belong: behind the write of a produce request, or of one that
// commits offsets, to the broker's socket, before its answer can be read. Nothing
// of it is in a release.
func watchRequests(conf *sarama.Config) {
	if crash.Enabled {
		conf.Net.Proxy.Enable = true
		conf.Net.Proxy.Dialer = crashDialer{&net.Dialer{Timeout: conf.Net.DialTimeout, KeepAlive: conf.Net.KeepAlive}}
	}
}

type crashDialer struct{ dialer *net.Dialer }

func (d crashDialer) Dial(network, addr string) (net.Conn, error) {
	c, err := d.dialer.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	return crashConn{c}, nil
}

// crashConn reads the head of every request: length u32, api key u16. sarama
// writes each request at once. Under TLS there is nothing to be read, and neither
// comes.
type crashConn struct{ net.Conn }

const (
	produceKey = 0
	commitKey  = 8
)

func (c crashConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil && len(b) > 8 && int(binary.BigEndian.Uint32(b)) == len(b)-4 {
		switch binary.BigEndian.Uint16(b[4:]) {
		case produceKey:
			crash.At("CP3")
		case commitKey:
			crash.At("CP14")
		}
	}
	return n, err
}
