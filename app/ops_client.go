package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"tidegate/pkg/telemetry"
)

const (
	opsTimeout   = 15 * time.Second
	maxOpsAnswer = 8 << 20
)

// opsClient asks the operations listener of a running role.
type opsClient struct {
	base *url.URL
	key  string
	http *http.Client
}

// newOpsClient takes the listener's address as a person writes it:
// http://127.0.0.1:9100, or only 127.0.0.1:9100. key is one of the listener's
// keys, or file:PATH of it, or empty.
func newOpsClient(addr, key string) (*opsClient, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return nil, usage(errors.New("--ops: write the address of an operations listener (ops.addr), for example http://127.0.0.1:9100"))
	}
	key, err = readOpsKey(key)
	if err != nil {
		return nil, usage(err)
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &opsClient{base: u, key: key, http: &http.Client{Timeout: opsTimeout, CheckRedirect: stay, Transport: &http.Transport{DisableKeepAlives: true}}}, nil
}

// readOpsKey takes what the command line gives; a key in a file is not seen by
// others in the list of processes.
func readOpsKey(key string) (string, error) {
	const most = 4 << 10
	path, isFile := strings.CutPrefix(key, "file:")
	if isFile {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("--key: %w", err)
		}
		defer func() { _ = f.Close() }()
		text, err := io.ReadAll(io.LimitReader(f, most+1))
		if err != nil {
			return "", fmt.Errorf("--key: %w", err)
		}
		key = strings.TrimSpace(string(text))
		if key == "" {
			return "", fmt.Errorf("--key: %s is empty", path)
		}
	}
	if len(key) > most || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("--key: this is no key: it has spaces, line breaks or more than 4096 characters")
	}
	return key, nil
}

// get fills dst with the answer, and gives its text as well.
func (c *opsClient) get(ctx context.Context, path string, q url.Values, dst any) ([]byte, error) {
	return c.send(ctx, opsRequest{method: http.MethodGet, path: path, query: q, scope: telemetry.ScopeRead}, dst)
}

// opsRequest is one request to the operations API.
type opsRequest struct {
	method, path string
	query        url.Values
	body         any    // sent as JSON; nil sends none
	ifMatch      string // the ETag that must still be there; "" does not ask
	scope        string // what a key must have, for the advice
}

func (r opsRequest) build(ctx context.Context, base *url.URL) (*http.Request, error) {
	u := base.JoinPath(r.path)
	u.RawQuery = r.query.Encode()
	var body io.Reader = http.NoBody
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.ifMatch != "" {
		req.Header.Set("If-Match", r.ifMatch)
	}
	return req, nil
}

// send fills dst with the answer, and gives its text as well.
func (c *opsClient) send(ctx context.Context, r opsRequest, dst any) ([]byte, error) {
	req, err := r.build(ctx, c.base)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.base, err)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w; is the role running, and is this its ops.addr?", c.base, inner(err))
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxOpsAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", c.base, err)
	case len(text) > maxOpsAnswer:
		return nil, fmt.Errorf("ask %s: the answer has more than %d bytes: ask for less", c.base, maxOpsAnswer)
	case resp.StatusCode != http.StatusOK:
		return nil, c.refused(r, resp.StatusCode, text)
	}
	if err := json.Unmarshal(text, dst); err != nil {
		return nil, fmt.Errorf("ask %s: the answer is not what %s gives: %w", c.base, r.path, err)
	}
	return text, nil
}

// refused says what the other side said; what it sends that is no problem of
// ours is not repeated to the terminal, nor is anything that would steer it.
func (c *opsClient) refused(r opsRequest, status int, text []byte) error {
	var p struct{ Detail, Do, Errcode string }
	err := json.Unmarshal(text, &p)
	const most = 1000 // letters of a sentence
	p.Detail, p.Do = printable(p.Detail, most), printable(p.Do, most)
	switch {
	case err == nil && p.Errcode == "invalid" && p.Detail != "":
		return usage(errors.New(p.Detail))
	case status == http.StatusUnauthorized:
		return fmt.Errorf("ask %[1]s: it takes only a key with the scope %[2]s: give one by --key or TIDEGATE_OPS_KEY; 'tidegate ops-key NAME --scope %[2]s' makes one for ops.keys", c.base, r.scope)
	case err == nil && p.Do != "":
		return fmt.Errorf("ask %s: %s; %s", c.base, p.Detail, p.Do)
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return fmt.Errorf("ask %s: nothing at %s: ask the operations listener (ops.addr) of %s", c.base, r.path, roleOf(r.path))
	}
	return fmt.Errorf("ask %s: status %d", c.base, status)
}

// roleOf says which role answers a path, to somebody who asked another.
func roleOf(path string) string {
	if strings.HasPrefix(path, "/ops/v1/users/") {
		return "a robot role"
	}
	switch path {
	case "/ops/v1/repeats":
		return "a receipts role"
	case "/ops/v1/queues":
		return "a proxy role whose proxy.queues.poll is not 0"
	case "/ops/v1/limits", "/ops/v1/audit", "/ops/v1/pauses", "/ops/v1/cancels":
		return "a sender or robot role"
	}
	if strings.HasPrefix(path, resendsPath) || strings.HasPrefix(path, "/ops/v1/webhooks") || path == "/ops/v1/jobs" || strings.HasPrefix(path, "/ops/v1/jobs/") || strings.HasPrefix(path, "/ops/v1/trace/") {
		return "a receipts role"
	}
	return "a role that has it"
}

// inner leaves out the address that net/http puts in front: ours is there.
func inner(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
