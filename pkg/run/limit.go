package run

import (
	"net"
	"net/netip"
	"sync"
)

// limitListener lets at most n connections be open; Accept waits for a place.
// Closing the listener ends a waiting Accept. One address has at most perAddress
// of the places, unless it is exempt: a further connection is closed at once, so
// that a stranger cannot keep everybody else waiting (S33).
type limitListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once

	perAddress int // 0 is off
	exempt     Addresses
	report     func(reason string)

	mu   sync.Mutex
	open map[netip.Addr]int
}

func newLimitListener(l net.Listener, n, perAddress int, exempt Addresses, report func(string)) net.Listener {
	return &limitListener{
		Listener: l, places: make(chan struct{}, n), closed: make(chan struct{}),
		perAddress: perAddress, exempt: exempt, report: report, open: map[netip.Addr]int{},
	}
}

func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.places
			return nil, err
		}
		from, counted := l.whose(c)
		if !counted {
			return &limitConn{Conn: c, release: func() { <-l.places }}, nil
		}
		if l.enter(from) {
			return &limitConn{Conn: c, release: func() { l.leave(from); <-l.places }}, nil
		}
		l.report(ReasonConnections)
		_ = c.Close()
	}
}

// whose gives the address that a connection counts for. A client of IPv6 has a
// whole /64 at its disposal.
func (l *limitListener) whose(c net.Conn) (from netip.Addr, counted bool) {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if l.perAddress <= 0 || !ok {
		return from, false
	}
	from = tcp.AddrPort().Addr().Unmap().WithZone("")
	if l.exempt.Has(from) {
		return from, false
	}
	if from.Is6() {
		p, _ := from.Prefix(64) // 64 bits are never too many
		from = p.Addr()
	}
	return from, true
}

func (l *limitListener) enter(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= l.perAddress {
		return false
	}
	l.open[from]++
	return true
}

func (l *limitListener) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] <= 0 {
		delete(l.open, from)
	}
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitConn struct {
	net.Conn
	release func()
	once    sync.Once
}

func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.release)
	return err
}
