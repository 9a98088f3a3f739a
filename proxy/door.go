package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/crash"
	"tidegate/pkg/wechat"
)

// success is the exact body that WeChat takes for "understood"; quotes or a
// newline around it would count as a bad answer (wechat.md 2).
var success = []byte("success")

// doorPath is what stands before an account's name in the address that WeChat
// calls.
const doorPath = "/wx/"

// route finds the account. A path is compared as it was sent: nothing is
// cleaned, decoded twice or redirected (S38). A mux would do all three, and cost
// more than this.
func (p *Proxy) route(w http.ResponseWriter, r *http.Request) {
	began := p.d.Now()
	name, ours := strings.CutPrefix(r.URL.Path, doorPath)
	if !ours || r.URL.RawPath != "" {
		p.m.refused.WithLabelValues("", "path").Inc()
		leaveBody(w, r)
		http.NotFound(w, r)
		return
	}
	acc := (*p.accounts.Load())[name]
	if acc == nil {
		p.m.refused.WithLabelValues("", "unknown_account").Inc()
		leaveBody(w, r)
		http.NotFound(w, r)
		return
	}
	p.serve(w, r, acc, began)
}

// serve is one request. What is refused before authenticity is shown is
// refused without a word about why, so that nobody can probe us.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, acc *entry, began time.Time) {
	if !acc.mayCome(p.trusted, r) {
		leaveBody(w, r)
		p.refuse(w, acc, errAddress)
		return
	}
	switch r.Method {
	case http.MethodGet:
		p.check(w, r, acc)
	case http.MethodPost:
		p.callback(w, r, acc, began)
	default:
		p.m.refused.WithLabelValues(acc.Name, "method").Inc()
		leaveBody(w, r)
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

var (
	errAddress  = &wechat.Refusal{Reason: "address"}
	errReceiver = &wechat.Refusal{Reason: "receiver"}
	errTooLarge = &wechat.Refusal{Reason: wechat.ReasonTooLarge}
)

// check answers WeChat's question whether this address is ours.
func (p *Proxy) check(w http.ResponseWriter, r *http.Request, acc *entry) {
	q, err := wechat.ParseQuery(r.URL.RawQuery)
	if err != nil {
		p.refuse(w, acc, err)
		return
	}
	echo, err := acc.verifier.CheckURL(q)
	if err == nil && p.reusedByCheck(r.Context(), acc, q) {
		err = errNonce
	}
	if err != nil {
		p.refuse(w, acc, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, echo)
}

// callback verifies, opens and takes one POST.
func (p *Proxy) callback(w http.ResponseWriter, r *http.Request, acc *entry, began time.Time) {
	q, err := wechat.ParseQuery(r.URL.RawQuery)
	if err == nil {
		err = acc.verifier.CheckQuery(q)
	}
	if err != nil {
		leaveBody(w, r)
		p.refuse(w, acc, err) // S1: before the body is read
		return
	}
	body, ok := p.read(w, r, acc)
	if !ok {
		return
	}
	crash.At("CP1")
	opened, err := acc.verifier.OpenChecked(q, body)
	if err != nil {
		p.refuse(w, acc, err)
		return
	}
	msg, err := wechat.ParseMessage(opened.Plain, q.OpenID)
	if err != nil {
		p.refuse(w, acc, err)
		return
	}
	if acc.GhID != "" && msg.ToUserName != acc.GhID && !msg.Quarantined {
		p.refuse(w, acc, errReceiver) // S10
		return
	}
	p.take(w, r, arrival{acc: acc, query: q, opened: opened, msg: msg, began: began})
}

// read takes the body within the limits. Compressed bodies are refused:
// WeChat sends none and a small one can unfold into gigabytes (S27).
func (p *Proxy) read(w http.ResponseWriter, r *http.Request, acc *entry) ([]byte, bool) {
	if r.Header.Get("Content-Encoding") != "" {
		p.m.refused.WithLabelValues(acc.Name, "encoding").Inc()
		leaveBody(w, r)
		http.Error(w, "compressed bodies are not taken", http.StatusUnsupportedMediaType)
		return nil, false
	}
	if r.ContentLength > wechat.MaxBody {
		leaveBody(w, r)
		p.refuse(w, acc, errTooLarge)
		return nil, false
	}
	body, err := readBody(w, r)
	if err == nil {
		return body, true
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		p.m.refused.WithLabelValues(acc.Name, "too_large").Inc()
		http.Error(w, "body too large", http.StatusRequestEntityTooLarge)
		return nil, false
	}
	p.m.refused.WithLabelValues(acc.Name, "read").Inc()
	http.Error(w, "bad request", http.StatusBadRequest)
	return nil, false
}

// readBody takes a body of the announced length, which is within the limit, into
// one buffer that fits; one of unknown length into a growing one.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(http.MaxBytesReader(w, r.Body, wechat.MaxBody))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// refuse gives the one answer to everything that is not authentic.
func (p *Proxy) refuse(w http.ResponseWriter, acc *entry, err error) {
	reason := "other"
	var r *wechat.Refusal
	if errors.As(err, &r) {
		reason = string(r.Reason)
	}
	p.m.refused.WithLabelValues(acc.Name, reason).Inc()
	status := http.StatusForbidden
	if r != nil && r.Reason == wechat.ReasonTooLarge {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, "refused", status)
}

// What an answer to a body that is too large waits for at most.
const (
	swallowBytes = 2 << 20
	swallowTime  = 250 * time.Millisecond
)

// swallow takes what a client is about to send anyway. Who is still sending when
// the connection is closed gets a reset and never sees the answer.
func swallow(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(swallowTime))
	_, _ = io.CopyN(io.Discard, r.Body, swallowBytes)
}

// leaveBody ends the connection of a request that is refused before its body was
// read. Otherwise net/http reads the body first, so that the connection can be
// used again, and a stranger who sends it slowly holds both until the time-out.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength > wechat.MaxBody {
		swallow(w, r)
	}
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
}

// kindOfPanic prints runtime errors, whose text is Go's, and only the type of
// anything else: a panic value may quote a message.
func kindOfPanic(v any) string {
	if e, ok := v.(runtime.Error); ok {
		return e.Error()
	}
	return fmt.Sprintf("%T", v)
}

// recoverer turns a panic into a 503: the callback was not made durable, so
// WeChat must send it again.
func recoverer(h http.Handler, log *zap.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler { //nolint:errorlint // the sentinel is compared as net/http does
					panic(v)
				}
				log.Error("callback handler panicked; WeChat will send the callback again",
					zap.String("panic", kindOfPanic(v)), zap.ByteString("stack", debug.Stack()))
				http.Error(w, "unavailable", http.StatusServiceUnavailable)
			}
		}()
		h.ServeHTTP(w, r)
	})
}
