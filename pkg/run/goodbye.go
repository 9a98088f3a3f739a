package run

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// goodbyeTime is how long a server that stops serves the connections that it
// has, so that whoever keeps them alive puts them away himself.
const goodbyeTime = 500 * time.Millisecond

// goodbye ends kept-alive connections without breaking a request. Closing an
// idle connection is a race: a client may have chosen it a moment ago, and a
// load balancer does not repeat a POST that it has written. So a server that
// stops first takes no new connections – those go to the next node – and says
// "close" in each answer; what is still idle after goodbyeTime is closed.
type goodbye struct {
	leaving atomic.Bool
	open    atomic.Int64
	none    chan struct{} // gets a token when the last connection is gone
}

func newGoodbye() *goodbye { return &goodbye{none: make(chan struct{}, 1)} }

// over adds it to a handler.
func (g *goodbye) over(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.leaving.Load() {
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
		if g.open.Add(-1) == 0 && g.leaving.Load() {
			select {
			case g.none <- struct{}{}:
			default:
			}
		}
	case http.StateActive, http.StateIdle:
	}
}

// say waits until the connections are gone, for goodbyeTime at most.
func (g *goodbye) say(ctx context.Context) {
	g.leaving.Store(true)
	if g.open.Load() == 0 {
		return
	}
	t := time.NewTimer(goodbyeTime)
	defer t.Stop()
	select {
	case <-g.none:
	case <-t.C:
	case <-ctx.Done():
	}
}
