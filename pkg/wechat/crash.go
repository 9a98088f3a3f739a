package wechat

import (
	"bytes"
	"context"
	"net"

	"tidegate/pkg/crash"
)

type dial func(ctx context.Context, network, addr string) (net.Conn, error)

// watchSends puts crash point CP11 (request written, unanswered) where it
// belongs: behind the write of a message to WeChat's socket, before its answer
// can be read. Nothing of it is in a release.
func watchSends(d dial) dial {
	if !crash.Enabled {
		return d
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return crashConn{c}, nil
	}
}

// crashConn knows the messages among the requests by their paths. net/http
// writes a request of up to 4 KB at once. Under TLS there is nothing to be read,
// and CP11 does not come.
type crashConn struct{ net.Conn }

func (c crashConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil && bytes.HasPrefix(b, []byte("POST /cgi-bin/message/")) {
		crash.At("CP11")
	}
	return n, err
}
