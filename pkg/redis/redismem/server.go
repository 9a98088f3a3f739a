package redismem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Server is a running server. Close it once; a second call does nothing.
type Server struct {
	m    *miniredis.Miniredis
	srv  *server.Server
	addr string
	born time.Time

	nested any      // the context of calls that run under miniredis' lock; see captureNested
	conns  sync.Map // *server.Peer of a real connection -> *conn
	hints  *hints
	dbs    map[int]struct{} // databases in which keys may be; guarded by miniredis' lock
	fault  atomic.Pointer[string]

	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// conn is what the hook remembers of one connection. Only the connection's own
// goroutine touches it.
type conn struct {
	multi  bool
	queued []string // keys that got a life inside MULTI
}

// Start listens on addr, for instance "127.0.0.1:6380"; an empty addr takes a
// free port on the loopback interface.
func Start(addr string) (*Server, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("start embedded redis on %s: %w", addr, err)
	}
	s := &Server{
		m: m, srv: m.Server(), addr: m.Addr(), born: time.Now(),
		hints: newHints(), dbs: map[int]struct{}{0: {}},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := s.captureNested(); err != nil {
		m.Close()
		return nil, fmt.Errorf("start embedded redis on %s: %w", addr, err)
	}
	s.srv.SetPreHook(s.hook)
	go s.sweep()
	return s, nil
}

// Addr is the host:port the server listens on.
func (s *Server) Addr() string { return s.addr }

// Close ends all connections and frees the port. All data is gone.
func (s *Server) Close() {
	s.once.Do(func() {
		close(s.stop)
		<-s.done
		s.m.Close()
	})
}

// RequireUser makes every new connection authenticate.
func (s *Server) RequireUser(name, password string) { s.m.RequireUserAuth(name, password) }

// Fail makes every command of every connection answer with this error, for
// instance "MISCONF disk is full"; an empty text ends that. For fault tests.
func (s *Server) Fail(text string) {
	if text == "" {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&text)
}

// Commands is the number of commands executed so far, with those inside scripts.
func (s *Server) Commands() int { return s.m.CommandCount() }

// now is the server's clock: milliseconds since its start, by the monotonic clock.
func (s *Server) now() int64 { return time.Since(s.born).Milliseconds() }
