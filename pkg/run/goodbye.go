package run

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// goodbyeQuiet is how long nobody must have used a connection before those that
// are left are closed.
const goodbyeQuiet = 250 * time.Millisecond

// goodbye ends kept-alive connections without breaking a request. Closing an
// idle connection is a race: a client may have chosen it a moment ago, and a
// load balancer does not repeat a POST that it has written. So a server that
// stops first takes no new connections – those go to the next node – and says
// "close" in each answer on the ones it has. Only when nobody uses them any more
// are they closed.
type goodbye struct {
	leaving atomic.Bool
	open    atomic.Int64
	used    atomic.Int64  // when a request came last, as Unix nanoseconds
	none    chan struct{} // gets a token when the last connection is gone
}

func newGoodbye() *goodbye { return &goodbye{none: make(chan struct{}, 1)} }

// over adds it to a handler.
func (g *goodbye) over(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.leaving.Load() {
			g.used.Store(time.Now().UnixNano())
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// track counts connections (http.Server.ConnState).
func (g *goodbye) track(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		g.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		if g.open.Add(-1) == 0 {
			select {
			case g.none <- struct{}{}:
			default:
			}
		}
	case http.StateActive, http.StateIdle:
	}
}

// say waits until the connections are gone or nobody uses them, for limit at
// most.
func (g *goodbye) say(ctx context.Context, limit time.Duration) {
	g.used.Store(time.Now().UnixNano())
	g.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := time.NewTimer(goodbyeQuiet)
	defer t.Stop()
	for g.open.Load() > 0 {
		select {
		case <-g.none:
		case <-t.C:
			left := goodbyeQuiet - time.Since(time.Unix(0, g.used.Load()))
			if left <= 0 {
				return
			}
			t.Reset(left)
		case <-ctx.Done():
			return
		}
	}
}
