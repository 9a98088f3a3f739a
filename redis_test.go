package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// oddRedis answers as a Redis does that is set up in some way: the one of the
// test run must not be reconfigured, and the embedded one is always right.
type oddRedis struct {
	info  map[string]string
	clock time.Duration // how far its clock is ahead
	wg    sync.WaitGroup
}

// startRedis serves until the test ends. Settings that are not given are those
// of a server that is in order.
func startRedis(t *testing.T, clock time.Duration, settings ...string) string {
	t.Helper()
	r := &oddRedis{clock: clock, info: map[string]string{
		"redis_version": "7.2.4", "redis_mode": "standalone", "role": "master",
		"aof_enabled": "1", "maxmemory": "1048576", "maxmemory_policy": "noeviction",
	}}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, ":")
		r.info[name] = value
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); r.wg.Wait() })
	return l.Addr().String()
}

func (r *oddRedis) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, r.answer(args)); err != nil {
			return
		}
	}
}

func (r *oddRedis) answer(args []string) string {
	switch strings.ToUpper(args[0]) {
	case "PING":
		return "+PONG\r\n"
	case "CLIENT":
		return "+OK\r\n"
	case "INFO":
		var b strings.Builder
		for name, value := range r.info {
			fmt.Fprintf(&b, "%s:%s\r\n", name, value)
		}
		return fmt.Sprintf("$%d\r\n%s\r\n", b.Len(), b.String())
	case "TIME":
		now := time.Now().Add(r.clock)
		seconds, micros := strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond()/1000)
		return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(seconds), seconds, len(micros), micros)
	case "SET":
		if r.info["role"] == "slave" {
			return "-READONLY You can't write against a read only replica.\r\n"
		}
		return "$-1\r\n"
	case "EVALSHA", "EVAL":
		return ":1\r\n"
	}
	return "-ERR unknown command\r\n"
}

// readCommand reads one array of strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readNumber(in, '*')
	if err != nil || n < 1 {
		return nil, io.ErrUnexpectedEOF
	}
	args := make([]string, n)
	for i := range args {
		size, err := readNumber(in, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func readNumber(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil || line[0] != kind {
		return 0, io.ErrUnexpectedEOF
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
