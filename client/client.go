package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options tune a client. The zero value is good.
type Options struct {
	// HTTP makes the requests; nil takes one with a time limit of 10 s.
	HTTP *http.Client
	// Tries bounds the requests of one call, 0 means 5.
	Tries int
	// MessagesURL is where messages are read if that is another host than
	// where pushes go. Empty: the same.
	MessagesURL string
	// BindingsURL is where robots serve bindings and erasure, if that is another
	// host than where pushes go. Empty: the same.
	BindingsURL string
}

// maxAnswer bounds an answer in bytes.
const maxAnswer = 8 << 20

// Pauses between tries where the server names none: they double from first to
// last and are drawn at random below that. longest is the longest Retry-After
// that is obeyed; a server that wants more gets no further try.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	longest    = time.Minute
)

// Client calls the API. It is safe for concurrent use.
type Client struct {
	http             *http.Client
	key              string
	pushes, messages string
	bindings         string
	tries            int
}

// New makes a client; it does not connect. base is scheme and host, for
// instance https://gate.example.com; key is what `tidegate apps add` printed.
func New(base, key string, o Options) (*Client, error) {
	if o.MessagesURL == "" {
		o.MessagesURL = base
	}
	if o.BindingsURL == "" {
		o.BindingsURL = base
	}
	c := &Client{http: o.HTTP, key: key, tries: o.Tries}
	for _, u := range []struct {
		in  string
		out *string
	}{{base, &c.pushes}, {o.MessagesURL, &c.messages}, {o.BindingsURL, &c.bindings}} {
		p, err := url.Parse(u.in)
		if err != nil || p.Scheme != "http" && p.Scheme != "https" || p.Host == "" || p.User != nil || p.RawQuery != "" || p.Fragment != "" {
			return nil, errors.New("new client: give the address as scheme and host, for instance https://gate.example.com")
		}
		*u.out = strings.TrimSuffix(p.String(), "/")
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("new client: give the key that `tidegate apps add` printed")
	}
	if c.tries <= 0 {
		c.tries = 5
	}
	if c.http == nil {
		c.http = &http.Client{Timeout: 10 * time.Second}
	}
	return c, nil
}

// call makes a request that may be repeated, until it is answered for good.
func (c *Client) call(ctx context.Context, method, target string, headers map[string]string, body []byte, want int, out any) error {
	for try := 1; ; try++ {
		err := c.once(ctx, method, target, headers, body, want, out)
		wait, again := repeat(err, try)
		if !again || try >= c.tries || ctx.Err() != nil {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(err, ctx.Err())
		}
	}
}

// repeat decides whether an error is worth another try, and after how long.
func repeat(err error, try int) (time.Duration, bool) {
	if err == nil {
		return 0, false
	}
	drawn := rand.N(min(firstPause<<min(try-1, 10), lastPause)) + time.Millisecond
	var p *Problem
	var lost *unanswered
	switch {
	case errors.As(err, &p):
		return max(p.RetryAfter, drawn), p.Temporary() && p.RetryAfter <= longest
	case errors.As(err, &lost):
		return drawn, true
	}
	return 0, false
}

// unanswered is a request without a complete answer: it may have been taken.
type unanswered struct{ err error }

func (u *unanswered) Error() string { return u.err.Error() }
func (u *unanswered) Unwrap() error { return u.err }

func (c *Client) once(ctx context.Context, method, target string, headers map[string]string, body []byte, want int, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return &unanswered{err}
	}
	defer func() { _ = res.Body.Close() }() // everything of interest has been read
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return &unanswered{err}
	}
	if len(b) > maxAnswer {
		return fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	if res.StatusCode != want {
		return problem(res, b)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}
