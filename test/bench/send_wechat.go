//go:build bench

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// instant is a WeChat that answers at once. It remembers which messages have come,
// and how often; its CPU is in the column load, for both targets.
type instant struct {
	url   string
	count atomic.Int64 // messages since reset

	mu   sync.Mutex
	seen map[string]int // by the key of the message
	bad  int            // requests that no sender should make
}

// Where the bare loop posts to.
const barePath = "/bare"

const benchToken = "bench-access-token-of-the-instant-wechat"

func startInstant(ctx context.Context) (*instant, func() error, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	i := &instant{url: "http://" + ln.Addr().String(), seen: map[string]int{}}
	m := http.NewServeMux()
	m.HandleFunc("POST /cgi-bin/stable_token", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answerJSON(rw, `{"access_token":"`+benchToken+`","expires_in":7200}`)
	})
	m.HandleFunc("POST /cgi-bin/message/template/send", func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("access_token") != benchToken {
			i.refuse()
			answerJSON(rw, `{"errcode":40001,"errmsg":"invalid credential"}`)
			return
		}
		n := i.take(r.Body, `"client_msg_id":"`)
		answerJSON(rw, `{"errcode":0,"errmsg":"ok","msgid":`+strconv.FormatInt(n, 10)+`}`)
	})
	m.HandleFunc("POST "+barePath, func(rw http.ResponseWriter, r *http.Request) {
		n := i.take(r.Body, `"id":"`)
		answerJSON(rw, `{"errcode":0,"errmsg":"ok","msgid":`+strconv.FormatInt(n, 10)+`}`)
	})
	m.HandleFunc("/", func(rw http.ResponseWriter, _ *http.Request) {
		i.refuse()
		answerJSON(rw, `{"errcode":48001,"errmsg":"api unauthorized"}`)
	})
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: m}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	return i, func() error {
		err := srv.Close()
		if e := <-done; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}

func answerJSON(rw http.ResponseWriter, text string) {
	rw.Header()["Content-Type"] = []string{"application/json"}
	_, _ = io.WriteString(rw, text)
}

func (i *instant) refuse() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.bad++
}

// take counts one message under the text behind field, up to the next quote.
func (i *instant) take(body io.Reader, field string) int64 {
	b, err := io.ReadAll(io.LimitReader(body, 1<<20))
	_, rest, found := bytes.Cut(b, []byte(field))
	key, _, whole := bytes.Cut(rest, []byte{'"'})
	if err != nil || !found || !whole || len(key) == 0 {
		i.refuse()
		return 0
	}
	i.mu.Lock()
	i.seen[string(key)]++
	i.mu.Unlock()
	return i.count.Add(1)
}

// reset forgets what has come.
func (i *instant) reset() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen, i.bad = map[string]int{}, 0
	i.count.Store(0)
}

// tally is how many messages and requests have come, and how many requests were
// none of a message.
func (i *instant) tally() (messages, requests, bad int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, n := range i.seen {
		requests += n
	}
	return len(i.seen), requests, i.bad
}
