//go:build bench

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// conn is one kept-alive HTTP/1.1 connection that writes finished requests. A
// general client would cost more than the server that is measured.
type conn struct {
	net.Conn
	in   *bufio.Reader
	body []byte
}

func dial(ctx context.Context, addr string, until time.Time) (*conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 1024)}, c.SetDeadline(until)
}

// post sends a request and reports whether the answer was the acknowledgement.
func (c *conn) post(req []byte) (acked bool, err error) {
	if _, err := c.Write(req); err != nil {
		return false, err
	}
	status, length, err := c.head()
	if err != nil {
		return false, err
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	for n := 0; n < length; {
		m, err := c.in.Read(c.body[n:])
		if err != nil {
			return false, err
		}
		n += m
	}
	return status == 200 && string(c.body) == "success", nil
}

var (
	statusStart = []byte("HTTP/1.1 ")
	lengthStart = []byte("Content-Length: ")
)

// maxAnswer bounds an answer; anything longer is not what this program knows.
const maxAnswer = 64 << 10

func (c *conn) head() (status, length int, err error) {
	length = -1
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			if !bytes.HasPrefix(line, statusStart) || len(line) < 12 {
				return 0, 0, fmt.Errorf("answer begins with %q", line)
			}
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, 0, err
			}
		case len(line) == 0:
			if length < 0 {
				return 0, 0, errors.New("answer without a length")
			}
			return status, length, nil
		case bytes.HasPrefix(line, lengthStart):
			if length, err = strconv.Atoi(string(line[len(lengthStart):])); err != nil || length < 0 || length > maxAnswer {
				return 0, 0, fmt.Errorf("answer with %q", line)
			}
		}
	}
}
