package run

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// front serves the plain requests of a strict server: those that came whole, in
// one piece, and have nothing in them that two readers could understand
// differently. That is nearly every callback, and costs a good half of what
// net/http takes for it. A connection whose next request is not like that goes to
// net/http with everything that was read of it, and stays there: slow clients,
// large bodies, chunks and whatever a stranger makes up are its work, behind
// watched, as if front were not there.
//
// Invariant: front takes a request only if net/http would hand the same one to the
// handler, and it has read nothing of a connection that it hands on.
type front struct {
	h     http.Handler
	c     HTTPConfig
	bye   *goodbye
	log   *log.Logger
	rest  chan net.Conn // to net/http
	ended chan struct{} // closed: net/http takes no more

	mu      sync.Mutex
	conns   map[*fronted]struct{}
	leaving atomic.Bool // set under mu
	busy    sync.WaitGroup
}

func newFront(c HTTPConfig, h http.Handler, bye *goodbye, l *log.Logger) *front {
	return &front{h: h, c: c, bye: bye, log: l, rest: make(chan net.Conn), ended: make(chan struct{}), conns: map[*fronted]struct{}{}}
}

// accept takes connections until the listener is closed. Other errors pass (no
// file descriptors, a client that was gone at once).
func (f *front) accept(ln net.Listener) error {
	pause := time.Duration(0)
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			f.log.Printf("accept: %v; trying again in %v", err, pause)
			<-time.After(pause)
			continue
		}
		pause = 0
		fc := &fronted{f: f, Conn: c}
		if !f.enter(fc) {
			_ = c.Close()
			continue
		}
		go fc.serve()
	}
}

func (f *front) enter(c *fronted) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaving.Load() {
		return false
	}
	f.conns[c] = struct{}{}
	f.busy.Add(1)
	return true
}

func (f *front) leave(c *fronted) {
	f.mu.Lock()
	delete(f.conns, c)
	f.mu.Unlock()
	f.busy.Done()
}

// stop closes what is idle and waits for the requests in the handlers; when ctx
// ends it closes them too.
func (f *front) stop(ctx context.Context) error {
	f.each(func(c *fronted) {
		if c.state.CompareAndSwap(idle, gone) {
			_ = c.Close()
		}
	})
	done := make(chan struct{})
	go func() { f.busy.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		f.each(func(c *fronted) { _ = c.Close() })
		return ctx.Err()
	}
}

func (f *front) each(do func(*fronted)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaving.Store(true)
	for c := range f.conns {
		do(c)
	}
}

// States of a connection at the front.
const (
	idle int32 = iota
	working
	gone
)

// frontBuffer holds one request; a larger one is net/http's.
const frontBuffer = 8 << 10

// fronted is one connection.
type fronted struct {
	net.Conn
	f      *front
	state  atomic.Int32
	remote string
	out    []byte // the last answer's room
}

func (c *fronted) serve() {
	defer c.f.leave(c)
	c.f.bye.track(c.Conn, http.StateNew)
	if c.loop() {
		c.f.bye.open.Add(-1) // net/http counts it now
		return
	}
	_ = c.Close()
	c.f.bye.track(c.Conn, http.StateClosed)
}

// loop serves request after request. True says that net/http has the connection.
func (c *fronted) loop() (handed bool) {
	buf := make([]byte, frontBuffer)
	c.remote = c.RemoteAddr().String()
	have, last := 0, ""
	until := time.Now().Add(c.f.c.ReadHeaderTimeout)
	for {
		if have == 0 {
			_ = c.SetReadDeadline(until)
			n, err := c.Read(buf)
			if n == 0 && err != nil {
				return false
			}
			if have = n; last != "" { // the first header's time began with the connection
				until = time.Now().Add(c.f.c.ReadHeaderTimeout)
			}
		}
		if last == http.MethodPost { // as net/http forgives clients that end a body with a line
			have = copy(buf, buf[lineEnds(buf[:min(have, 4)]):have])
			if last = "-"; have == 0 {
				until = time.Now().Add(c.f.c.IdleTimeout)
				continue
			}
		}
		if !c.state.CompareAndSwap(idle, working) {
			return false
		}
		r, size := plainRequest(buf[:have], c.f.c.MaxHeaderBytes)
		if r == nil {
			return c.handOver(buf[:have], until)
		}
		last = r.Method
		r.RemoteAddr = c.remote
		_ = c.SetWriteDeadline(time.Now().Add(c.f.c.WriteTimeout))
		if !c.answer(r) {
			return false
		}
		// Who stops sees it idle, or is seen.
		if c.state.Store(idle); c.f.leaving.Load() {
			return false
		}
		have = copy(buf, buf[size:have])
		until = time.Now().Add(c.f.c.IdleTimeout)
	}
}

// lineEnds counts the carriage returns and line feeds at the beginning.
func lineEnds(b []byte) int {
	for i, c := range b {
		if c != '\r' && c != '\n' {
			return i
		}
	}
	return len(b)
}

// answer runs the handler and says whether the connection may go on.
func (c *fronted) answer(r *http.Request) (on bool) {
	defer func() {
		if v := recover(); v != nil {
			on = false
			if v != http.ErrAbortHandler { //nolint:errorlint // the sentinel is compared as net/http does
				c.f.log.Printf("http: panic serving\n%s", debug.Stack())
			}
		}
	}()
	w := frontWriter{c: c}
	c.f.h.ServeHTTP(&w, r)
	return w.finish()
}

// handOver gives the connection to net/http, with what was read of the next
// request, whose header must have ended by a time.
func (c *fronted) handOver(read []byte, by time.Time) bool {
	select {
	case c.f.rest <- &handed{Conn: c.Conn, read: append([]byte(nil), read...), by: by}:
		return true
	case <-c.f.ended:
		return false
	}
}

// handed is a connection of which something was read.
type handed struct {
	net.Conn
	read []byte
	by   time.Time
}

func (h *handed) Read(p []byte) (int, error) {
	if len(h.read) > 0 {
		n := copy(p, h.read)
		h.read = h.read[n:]
		return n, nil
	}
	return h.Conn.Read(p)
}

// SetReadDeadline cuts the first one, which net/http sets for the header: its time
// began when front read the first byte.
func (h *handed) SetReadDeadline(t time.Time) error {
	if !h.by.IsZero() && !t.IsZero() {
		if h.by.Before(t) {
			t = h.by
		}
		h.by = time.Time{}
	}
	return h.Conn.SetReadDeadline(t)
}

// handedListener is where net/http takes them from.
type handedListener struct {
	f    *front
	addr net.Addr
	once sync.Once
}

func (l *handedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.f.rest:
		return c, nil
	case <-l.f.ended:
		return nil, net.ErrClosed
	}
}

func (l *handedListener) Close() error {
	l.once.Do(func() { close(l.f.ended) })
	return nil
}

func (l *handedListener) Addr() net.Addr { return l.addr }
