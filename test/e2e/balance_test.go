//go:build e2e

package e2e

import (
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// balancer stands where a load balancer stands: it hashes WeChat's openid
// parameter over the doors, so that a follower keeps his door while it lives
// (D12), and takes the next one when a connection cannot be made or breaks.
// Like nginx it does not repeat a request that a door has begun to read.
type balancer struct {
	mu    sync.Mutex
	doors []string
	http  http.Client
	url   string
}

func newBalancer(t *testing.T, doors ...string) *balancer {
	b := &balancer{doors: doors, http: http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DialContext: (&net.Dialer{Timeout: 500 * time.Millisecond}).DialContext},
	}}
	s := httptest.NewServer(b)
	t.Cleanup(func() { s.Close(); b.http.CloseIdleConnections() })
	b.url = s.URL
	return b
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		http.Error(w, "bad body", http.StatusBadRequest)
		return
	}
	for _, door := range b.order(r.URL.Query().Get("openid")) {
		// A connection per request keeps "not taken" and "taken but not answered"
		// apart: only the first may go to another door.
		conn, err := net.DialTimeout("tcp", door, 300*time.Millisecond)
		if err != nil {
			continue
		}
		_ = conn.Close()
		if b.pass(w, r, door, body) {
			return
		}
		http.Error(w, "bad gateway", http.StatusBadGateway)
		return
	}
	http.Error(w, "no door", http.StatusBadGateway)
}

func (b *balancer) order(openid string) []string {
	b.mu.Lock()
	doors := slices.Clone(b.doors)
	b.mu.Unlock()
	h := fnv.New32a()
	_, _ = h.Write([]byte(openid))
	first := int(h.Sum32()) % len(doors)
	if first < 0 {
		first += len(doors)
	}
	return append(doors[first:], doors[:first]...)
}

func (b *balancer) pass(w http.ResponseWriter, r *http.Request, door string, body []byte) bool {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+door+r.URL.RequestURI(), newReader(body))
	if err != nil {
		return false
	}
	req.Header = r.Header.Clone()
	res, err := b.http.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return false
	}
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(answer)
	return true
}
