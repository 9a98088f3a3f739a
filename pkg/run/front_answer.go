package run

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// frontBody is a body that is there already.
type frontBody struct{ left []byte }

func (b *frontBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

func (b *frontBody) Close() error { return nil }

// frontWriter keeps the answer until its handler has returned, and sends it in one
// piece. Flush sends what is there; the end of the connection is then the end of
// the answer, unless the handler has said its length.
type frontWriter struct {
	c       *fronted
	header  http.Header // nil: nobody has touched it
	status  int
	body    []byte
	flushed bool
	closing bool
	err     error
}

func (w *frontWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

func (w *frontWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

func (w *frontWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !w.flushed {
		w.body = append(w.body, p...)
		return len(p), nil
	}
	if w.err == nil {
		_, w.err = w.c.Write(p)
	}
	return len(p), w.err
}

// SetReadDeadline and SetWriteDeadline are what http.ResponseController asks for.
func (w *frontWriter) SetReadDeadline(t time.Time) error { return w.c.SetReadDeadline(t) }

// SetWriteDeadline implements the same.
func (w *frontWriter) SetWriteDeadline(t time.Time) error { return w.c.SetWriteDeadline(t) }

// FlushError implements http.ResponseController's flush.
func (w *frontWriter) FlushError() error {
	if w.flushed {
		return w.err
	}
	w.flushed = true
	w.WriteHeader(http.StatusOK)
	length := w.Header().Get("Content-Length")
	w.closing = w.closing || length == ""
	w.send(length)
	return w.err
}

// finish sends what has not been sent, and says whether the connection may go on.
func (w *frontWriter) finish() bool {
	if !w.flushed {
		w.WriteHeader(http.StatusOK)
		w.send(strconv.Itoa(len(w.body)))
	}
	return w.err == nil && !w.closing
}

// ours are the headers that the server itself answers for.
var ours = map[string]bool{"Content-Length": true, "Connection": true, "Date": true, "Transfer-Encoding": true}

func (w *frontWriter) send(length string) {
	bodyless := w.status == http.StatusNoContent || w.status == http.StatusNotModified
	b := append(w.c.out[:0], "HTTP/1.1 "...)
	b = append(strconv.AppendInt(b, int64(w.status), 10), ' ')
	b = append(append(b, http.StatusText(w.status)...), "\r\nDate: "...)
	b = append(b, httpDate(time.Now())...)
	if w.header.Get("Content-Type") == "" && len(w.body) > 0 && !bodyless {
		b = append(append(b, "\r\nContent-Type: "...), http.DetectContentType(w.body)...)
	}
	if length != "" && !bodyless {
		b = append(append(b, "\r\nContent-Length: "...), length...)
	}
	if w.closing = w.closing || w.header.Get("Connection") == "close" || w.c.f.leaving.Load(); w.closing {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, "\r\n"...)
	if len(w.header) > 0 {
		out := appender(b)
		_ = w.header.WriteSubset(&out, ours)
		b = out
	}
	b = append(b, "\r\n"...)
	if !bodyless {
		b = append(b, w.body...)
	}
	_, w.err = w.c.Write(b)
	if w.c.out = b[:0]; cap(b) > frontBuffer {
		w.c.out = nil
	}
}

type appender []byte

func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}

// dated is the text of one second.
type dated struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[dated]

func httpDate(now time.Time) string {
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dated{second: now.Unix(), text: now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}
