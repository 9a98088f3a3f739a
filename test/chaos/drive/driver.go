package drive

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tidegate/test/chaos/history"
)

// Options say who delivers what where.
type Options struct {
	Doors    []Door
	Accounts []Account
	Routing  Routing
	// Deliveries is the number of deliveries at most: 4 are "three retries", 3 are
	// what people have seen, 1 switches repeats off. Default 4.
	Deliveries int
	// NoRepeatOnBad leaves out the repeats at once after a bad answer, which are
	// not documented; those after silence stay.
	NoRepeatOnBad bool
	// Timeout is how long WeChat waits for an answer. Default 5 s.
	Timeout time.Duration
	// MaxInFlight bounds callbacks under way in the open loop. Default 8192.
	MaxInFlight int
	// FreshConnections opens one for each delivery, as nginx does towards its
	// upstreams where it was not told otherwise.
	FreshConnections bool
	// History takes the events; nil keeps none.
	History *history.Writer
}

// Driver is safe for concurrent use.
type Driver struct {
	opt     Options
	sealers map[string]*sealer
	http    *http.Client
	flight  chan struct{}
	way     atomic.Int64 // Routing

	inFlight atomic.Int64
	refusals atomic.Int64

	mu    sync.Mutex
	phase *Phase
	all   []*Phase
}

// New checks the options.
func New(o Options) (*Driver, error) {
	if o.Deliveries == 0 {
		o.Deliveries = 4
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 8192
	}
	if len(o.Doors) == 0 || o.Deliveries < 1 || o.Deliveries > 4 {
		return nil, errors.New("drive: give at least one door, and 1 to 4 deliveries")
	}
	d := &Driver{opt: o, sealers: map[string]*sealer{}, flight: make(chan struct{}, o.MaxInFlight)}
	for _, a := range o.Accounts {
		s, err := newSealer(a)
		if err != nil {
			return nil, err
		}
		d.sealers[a.Name] = s
	}
	d.http = &http.Client{Transport: &http.Transport{
		DialContext:  (&net.Dialer{Timeout: o.Timeout}).DialContext,
		MaxIdleConns: 4096, MaxIdleConnsPerHost: 1024,
		// net/http keeps connections that it dialled and then did not need. A door ends one
		// that has said nothing for two seconds, and a callback that takes it at that moment
		// has no answer.
		IdleConnTimeout:    time.Second,
		DisableCompression: true, DisableKeepAlives: o.FreshConnections,
	}}
	d.Route(o.Routing)
	d.Begin("all")
	return d, nil
}

// Close lets go of the connections.
func (d *Driver) Close() { d.http.CloseIdleConnections() }

// Route changes the routing of later deliveries.
func (d *Driver) Route(r Routing) { d.way.Store(int64(r)) }

func (d *Driver) routing() Routing { return Routing(d.way.Load()) }

// InFlight is the number of deliveries under way.
func (d *Driver) InFlight() int64 { return d.inFlight.Load() }

// RefusedConnections counts connections that a door did not take; the balancer
// went on to the next one, if there was one.
func (d *Driver) RefusedConnections() int64 { return d.refusals.Load() }

func (d *Driver) note(e history.Event) {
	if e.Kind == history.Invoke {
		d.inFlight.Add(1)
	} else {
		d.inFlight.Add(-1)
	}
	if d.opt.History != nil {
		d.opt.History.Add(e)
	}
}

// Send is a callback with its repeats: until one delivery is acked, or WeChat
// gives it up. It reports whether it was acked.
func (d *Driver) Send(ctx context.Context, a Act, due time.Time) bool {
	for n := 1; n <= d.opt.Deliveries && ctx.Err() == nil; n++ {
		ans := d.Deliver(ctx, a, n, due)
		if ans.Acked {
			return true
		}
		if ans.Class != history.None && d.opt.NoRepeatOnBad {
			return false
		}
		due = time.Time{} // a repeat comes at once: silence has cost its time already
	}
	return false
}
