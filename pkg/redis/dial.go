package redis

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// dialer connects like go-redis. But a connection that cannot be made is handed
// over stillborn, with the error in it: after PoolSize failed dials go-redis would
// answer from memory and look once a second whether the server is back. Shared
// permits take a failed command for a sign that Redis is away at this moment, and
// everything else wants to notice its return as soon as it asks. (Of sentinels that
// are all away go-redis tells in its own way, with the look once a second.)
func dialer(timeout time.Duration, t *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := goredis.NewDialer(&goredis.Options{DialTimeout: timeout, TLSConfig: t})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			// go-redis peels one layer off an error of the hand-shake.
			return stillborn{err: fmt.Errorf("redis is away: %w", err), to: remote{network, addr}}, nil
		}
		return conn, nil
	}
}

// stillborn is a connection that says on first use why there is none.
type stillborn struct {
	err error
	to  remote
}

func (s stillborn) Read([]byte) (int, error)       { return 0, s.err }
func (s stillborn) Write([]byte) (int, error)      { return 0, s.err }
func (stillborn) Close() error                     { return nil }
func (s stillborn) LocalAddr() net.Addr            { return s.to }
func (s stillborn) RemoteAddr() net.Addr           { return s.to }
func (stillborn) SetDeadline(time.Time) error      { return nil }
func (stillborn) SetReadDeadline(time.Time) error  { return nil }
func (stillborn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn fails, by which go-redis finds a connection dead before it takes it
// from among the idle ones: that is where one lands whose caller had no more time.
func (s stillborn) SyscallConn() (syscall.RawConn, error) { return nil, s.err }

// remote is the address that could not be reached.
type remote struct{ network, addr string }

func (r remote) Network() string { return r.network }
func (r remote) String() string  { return r.addr }
