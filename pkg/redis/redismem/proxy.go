package redismem

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
)

// Proxy stands between a client and a server and plays network faults: replies
// that get lost after the server did its work, and a line that hangs. It counts
// what it did, so that a fault test can assert that its fault happened.
type Proxy struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup

	mu        sync.Mutex
	turned    *sync.Cond // a hang ended, or the proxy closed
	match     []byte
	armed     int
	swallowed int
	hanging   bool
	held      int
	closed    bool
	conns     map[net.Conn]struct{}
}

// StartProxy listens on a free loopback port and forwards to target.
func StartProxy(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start redis proxy: %w", err)
	}
	p := &Proxy{target: target, ln: ln, conns: map[net.Conn]struct{}{}}
	p.turned = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the host:port for the client.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// SwallowReplies loses the replies to the next n requests that contain match
// (a command's bytes, for instance "nx"): the server executes the request, then
// the connection ends.
func (p *Proxy) SwallowReplies(match string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.match, p.armed = []byte(match), n
}

// Swallowed is the number of replies lost so far.
func (p *Proxy) Swallowed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.swallowed
}

// Hang holds all requests from now on, or lets them go on.
func (p *Proxy) Hang(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging = on
	p.turned.Broadcast()
}

// Held is the number of requests that met a hanging line so far.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// Close cuts all connections and waits for the proxy's goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.turned.Broadcast()
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.ln.Close()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		if !p.track(client, server) {
			return
		}
		line := &line{p: p, client: client, server: server}
		p.wg.Go(line.requests)
		p.wg.Go(line.replies)
	}
}

func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			c.Close()
			continue
		}
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

// line is one proxied connection.
type line struct {
	p              *Proxy
	client, server net.Conn
	swallow        bool // the next reply is to be lost; guarded by p.mu
}

func (l *line) requests() {
	defer l.cut()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if err != nil || !l.admit(buf[:n]) {
			return
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// admit waits while the line hangs and arms the loss of the reply. It reports
// false when the proxy has closed.
func (l *line) admit(req []byte) bool {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging {
		p.held++
	}
	for p.hanging && !p.closed {
		p.turned.Wait()
	}
	if p.armed > 0 && bytes.Contains(req, p.match) {
		p.armed--
		l.swallow = true
	}
	return !p.closed
}

func (l *line) replies() {
	defer l.cut()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil || l.lose() {
			return
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *line) lose() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.swallow {
		l.p.swallowed++
	}
	return l.swallow
}

func (l *line) cut() {
	l.client.Close()
	l.server.Close()
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	delete(l.p.conns, l.client)
	delete(l.p.conns, l.server)
}
