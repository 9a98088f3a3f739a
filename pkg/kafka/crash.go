package kafka

import (
	"encoding/binary"
	"net"

	"github.com/IBM/sarama"

	"tidegate/pkg/crash"
)

// watchProduce puts crash point CP3 (produced, unacked) where it belongs: behind
// the write of a produce request to the broker's socket, before its answer can
// be read. Nothing of it is in a release.
func watchProduce(conf *sarama.Config) {
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
// writes each request at once. Under TLS there is nothing to be read, and CP3
// does not come.
type crashConn struct{ net.Conn }

const produceKey = 0

func (c crashConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil && len(b) > 8 && int(binary.BigEndian.Uint32(b)) == len(b)-4 && binary.BigEndian.Uint16(b[4:]) == produceKey {
		crash.At("CP3")
	}
	return n, err
}
