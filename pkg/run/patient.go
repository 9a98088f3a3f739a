package run

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// patientListener lets connections set deadlines for the price of a note.
// net/http moves the deadline of a connection five times in each request, nearly
// always to a later time, and each move costs a lock and a timer of the runtime.
type patientListener struct{ net.Listener }

func (l patientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &patientConn{Conn: c}, nil
}

// patientConn keeps the deadline that was set first when a later one is wanted.
// When that one is over, whoever waits looks at what is wanted by then, and waits
// on if there is time left: nobody is ended earlier or later than was asked.
type patientConn struct {
	net.Conn
	reading, writing deadline
}

// deadline is one direction's.
type deadline struct {
	mu     sync.Mutex
	wanted time.Time // zero: none
	armed  time.Time // what the connection has been told
}

// want notes a deadline, and tells the connection if it is earlier than the one
// that it knows.
func (d *deadline) want(t time.Time, tell func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	if t.IsZero() || !d.armed.IsZero() && !t.Before(d.armed) {
		return nil
	}
	d.armed = t
	return tell(t)
}

// more tells whether err only says that an earlier deadline is over; then the
// connection knows the wanted one.
func (d *deadline) more(err error, tell func(time.Time) error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanted.IsZero() && !d.wanted.After(time.Now()) {
		return false
	}
	d.armed = d.wanted
	return tell(d.wanted) == nil
}

func (c *patientConn) SetReadDeadline(t time.Time) error {
	return c.reading.want(t, c.Conn.SetReadDeadline)
}

func (c *patientConn) SetWriteDeadline(t time.Time) error {
	return c.writing.want(t, c.Conn.SetWriteDeadline)
}

func (c *patientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *patientConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err == nil || n > 0 || !c.reading.more(err, c.Conn.SetReadDeadline) {
			return n, err
		}
	}
}

func (c *patientConn) Write(p []byte) (int, error) {
	written := 0
	for {
		n, err := c.Conn.Write(p[written:])
		written += n
		if err == nil || !c.writing.more(err, c.Conn.SetWriteDeadline) {
			return written, err
		}
	}
}
