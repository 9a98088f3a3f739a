package run

import (
	"bytes"
	"context"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// Reasons that a strict server reports: a closed set, fit for a metric label.
const (
	ReasonConnections = "connections"  // one address had too many connections
	ReasonLineFeed    = "line_feed"    // a line of the header ended without a carriage return
	ReasonFolded      = "folded"       // a header went on in the next line
	ReasonHeaderCount = "header_count" // too many headers
	ReasonHeaderSize  = "header_size"  // headers too large
	ReasonLength      = "length"       // Content-Length given twice, or not a plain number
	ReasonChunked     = "chunked"      // a body in chunks
	ReasonMalformed   = "malformed"    // net/http did not understand it
	ReasonIncomplete  = "incomplete"   // the header never ended: cut off, or too slow
	maxWatched        = 64             // bytes of a line that are looked at
	untilClosed       = math.MaxInt64  // a body whose end is not known
	maxLengthDigits   = 18             // more do not fit into 64 bits
	contentLength     = "content-length:"
	transferEncoding  = "transfer-encoding:"
)

var flaws = [...]string{"", ReasonLineFeed, ReasonFolded, ReasonHeaderCount, ReasonHeaderSize, ReasonLength, ReasonChunked}

// watched reads along with net/http and notes what net/http would take and a
// server in front of us could understand otherwise: two parties that disagree
// where a request ends let a stranger write the next client's request (S32). It
// changes nothing and answers nothing; the handler refuses by what was noted.
//
// A flaw stays for the connection's life: behind it nobody knows what is what.
type watched struct {
	net.Conn
	maxHeaders int
	maxBytes   int
	report     func(reason string)

	// What follows is touched by Read alone, and net/http reads one at a time.
	body    int64 // what is left of the body
	size    int   // bytes of the header so far
	lines   int   // of the header so far
	length  int64 // Content-Length; -1 while there is none
	chunked bool
	partial [maxWatched]byte // beginning of a line that came in pieces
	kept    int
	last    byte // last byte of a line that came in pieces

	flaw   atomic.Int32 // index into flaws
	blocks atomic.Int32 // headers that were read to their end
	begun  atomic.Int32 // bytes of one that was not
	served atomic.Int32 // requests that reached the handler
	inside atomic.Bool  // a request is in the handler
	ended  atomic.Bool  // reading came to an end, not to a refusal
	once   sync.Once
}

// watchListener wraps every connection.
type watchListener struct {
	net.Listener
	maxHeaders, maxBytes int
	report               func(reason string)
}

func (l watchListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watched{Conn: c, maxHeaders: l.maxHeaders, maxBytes: l.maxBytes, report: l.report, length: -1}, nil
}

// Read leaves out the look at whether the client is still there. While a handler
// works, net/http keeps a goroutine in a read of one byte for that, which costs
// more than the request's own read: a system call that finds nothing, a deadline
// to end it, two changes of goroutines. The handlers of a strict server end by a
// time of their own and do not want to know.
func (c *watched) Read(p []byte) (int, error) {
	if len(p) == 1 && c.inside.Load() {
		return 0, nil // net/http does not look again; what comes is read with the next request
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.observe(p[:n])
		c.begun.Store(int32(min(c.size, math.MaxInt32)))
	}
	if err != nil {
		c.ended.Store(true)
	}
	return n, err
}

func (c *watched) observe(p []byte) {
	for len(p) > 0 {
		if c.body > 0 {
			n := min(c.body, int64(len(p)))
			p = p[n:]
			if c.body != untilClosed {
				c.body -= n
			}
			continue
		}
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			c.keep(p)
			return
		}
		if c.kept == 0 {
			c.size += i + 1
			c.line(p[:i], i > 0 && p[i-1] == '\r')
		} else {
			c.keep(p[:i])
			c.size++
			c.line(c.partial[:c.kept], c.last == '\r')
			c.kept = 0
		}
		p = p[i+1:]
	}
}

// keep holds the beginning of a line whose end has not come.
func (c *watched) keep(p []byte) {
	if len(p) == 0 {
		return
	}
	c.kept += copy(c.partial[c.kept:], p)
	c.size += len(p)
	c.last = p[len(p)-1]
}

// line looks at one line of the header, or at its beginning if it is long.
func (c *watched) line(l []byte, ended bool) {
	if !ended {
		c.note(ReasonLineFeed)
	}
	l = bytes.TrimSuffix(l, []byte{'\r'})
	if len(l) == 0 {
		c.endOfHeader()
		return
	}
	c.lines++
	switch {
	case c.lines == 1: // the request line
	case c.lines > c.maxHeaders+1:
		c.note(ReasonHeaderCount)
	case l[0] == ' ' || l[0] == '\t':
		c.note(ReasonFolded)
	case l[0]|0x20 == 'c' && hasName(l, contentLength):
		c.setLength(bytes.Trim(l[len(contentLength):], " \t"))
	case l[0]|0x20 == 't' && hasName(l, transferEncoding):
		c.note(ReasonChunked)
		c.chunked = true
	}
}

// hasName tells that a line begins with a header's name, in any case.
func hasName(l []byte, name string) bool {
	return len(l) >= len(name) && bytes.EqualFold(l[:len(name)], []byte(name))
}

func (c *watched) setLength(digits []byte) {
	n := int64(0)
	for _, d := range digits {
		if d < '0' || d > '9' || len(digits) > maxLengthDigits {
			c.note(ReasonLength)
			return
		}
		n = 10*n + int64(d-'0')
	}
	if len(digits) == 0 || c.length >= 0 {
		c.note(ReasonLength)
		return
	}
	c.length = n
}

func (c *watched) endOfHeader() {
	if c.lines == 0 {
		return // net/http forgives an empty line in front of a request
	}
	if c.size > c.maxBytes {
		c.note(ReasonHeaderSize)
	}
	c.body = max(c.length, 0)
	if c.chunked {
		c.body = untilClosed
	}
	c.size, c.lines, c.length, c.chunked = 0, 0, -1, false
	c.blocks.Add(1)
}

// note keeps the first flaw.
func (c *watched) note(reason string) {
	for i, f := range flaws {
		if f == reason {
			c.flaw.CompareAndSwap(0, int32(i))
		}
	}
}

// Close reports what never reached the handler.
func (c *watched) Close() error {
	flaw := flaws[c.flaw.Load()]
	unserved := c.blocks.Load() > c.served.Load()
	switch begun := int(c.begun.Load()); {
	case flaw != "" && (unserved || begun > 0):
		c.tell(flaw)
	case unserved:
		c.tell(ReasonMalformed)
	case begun >= c.maxBytes:
		c.tell(ReasonHeaderSize)
	case begun > 0 && c.ended.Load():
		c.tell(ReasonIncomplete)
	case begun > 0:
		c.tell(ReasonMalformed)
	}
	return c.Conn.Close()
}

// tell reports one thing in a connection's life: it ends with it.
func (c *watched) tell(reason string) { c.once.Do(func() { c.report(reason) }) }

type watchKey struct{}

func withWatched(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, watchKey{}, c)
}

// refuseFlawed answers a request with a flaw and ends its connection.
func refuseFlawed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(watchKey{}).(*watched)
		if !ok {
			h.ServeHTTP(w, r)
			return
		}
		c.served.Add(1)
		if r.ProtoMajor != 1 { // net/http hands the beginning of HTTP/2 to the handler
			c.refuse(w, ReasonMalformed, http.StatusHTTPVersionNotSupported)
			return
		}
		switch flaw := flaws[c.flaw.Load()]; flaw {
		case "":
			c.inside.Store(true)
			h.ServeHTTP(w, r)
			c.inside.Store(false)
		case ReasonHeaderSize, ReasonHeaderCount:
			c.refuse(w, flaw, http.StatusRequestHeaderFieldsTooLarge)
		default:
			c.refuse(w, flaw, http.StatusBadRequest)
		}
	})
}

func (c *watched) refuse(w http.ResponseWriter, reason string, status int) {
	c.tell(reason)
	w.Header().Set("Connection", "close")
	http.Error(w, http.StatusText(status), status)
}
