package control

import (
	"sync/atomic"
	"time"
)

// staleOrders is how old a node's view may be for pushes to go (D9): behind it
// there may be a pause that has not been seen.
const staleOrders = 2 * time.Second

// Orders are the pauses and cancels in force, as one node sees them. Looking
// takes no lock: every message looks at every try. A nil *Orders has none.
type Orders struct {
	view *View
	set  atomic.Pointer[orders]
	// changed hears that the orders are others; it must not block.
	changed atomic.Pointer[func()]
}

// InForce is one order that is in force.
type InForce struct {
	Name   string
	Order  Order
	By     string
	Reason string
	Since  time.Time
	Until  time.Time // zero: until it is taken back
	// Problem says why the order cannot be read by this release. A pause then
	// covers all pushes, because it is there to stop something; a cancel covers
	// nothing, because it cannot be undone.
	Problem string
	Version int64
}

// orders is one state of them, never changed.
type orders struct {
	version        int64
	pauses         []InForce
	cancels        []InForce
	pausesByTenant map[string][]InForce // by account; "" is for all
}

func newOrders(v *View) *Orders {
	o := &Orders{view: v}
	o.set.Store(&orders{})
	v.Watch(o.take)
	return o
}

func (o *Orders) take(version int64, rows []Row) {
	next := &orders{version: version, pausesByTenant: map[string][]InForce{}}
	for _, r := range rows {
		if r.Kind != KindPause && r.Kind != KindCancel {
			continue
		}
		f := InForce{Name: r.Subject, By: r.By, Reason: r.Reason, Since: r.At, Until: r.ExpiresAt, Version: r.Version}
		var err error
		if f.Order, err = orderOf(r.Value); err != nil {
			f.Problem = err.Error()
			f.Order = Order{All: true}
		}
		if r.Kind == KindCancel {
			next.cancels = append(next.cancels, f)
			continue
		}
		next.pauses = append(next.pauses, f)
		next.pausesByTenant[f.Order.Account] = append(next.pausesByTenant[f.Order.Account], f)
	}
	o.set.Store(next)
	if fn := o.changed.Load(); fn != nil {
		(*fn)()
	}
}

// OnChange has fn called when the orders are others. It must not block.
func (o *Orders) OnChange(fn func()) {
	if o != nil {
		o.changed.Store(&fn)
	}
}

// Paused finds a pause that covers the message: the one that lasts longest, so
// that a message which waits for it is not looked at in vain.
func (o *Orders) Paused(m Message) (InForce, bool) {
	if o == nil {
		return InForce{}, false
	}
	s := o.set.Load()
	var found InForce
	ok := false
	for _, some := range [2][]InForce{s.pausesByTenant[m.Account], s.pausesByTenant[""]} {
		for _, f := range some {
			if f.Order.Covers(m) && (!ok || longer(f, found)) {
				found, ok = f, true
			}
		}
	}
	return found, ok
}

func longer(a, b InForce) bool {
	return !b.Until.IsZero() && (a.Until.IsZero() || a.Until.After(b.Until))
}

// Cancelled finds a cancel that covers the message.
func (o *Orders) Cancelled(m Message) (InForce, bool) {
	if o == nil {
		return InForce{}, false
	}
	for _, f := range o.set.Load().cancels {
		if f.Problem == "" && f.Order.Covers(m) {
			return f, true
		}
	}
	return InForce{}, false
}

// Cancels lists the cancels that can be followed.
func (o *Orders) Cancels() (out []InForce) {
	if o == nil {
		return nil
	}
	for _, f := range o.set.Load().cancels {
		if f.Problem == "" {
			out = append(out, f)
		}
	}
	return out
}

// Stands tells whether a pause is still in force.
func (o *Orders) Stands(name string) bool {
	if o == nil {
		return false
	}
	for _, f := range o.set.Load().pauses {
		if f.Name == name {
			return true
		}
	}
	return false
}

// Current tells whether the orders are known well enough for pushes to go.
func (o *Orders) Current() bool { return o == nil || o.view.Age() <= staleOrders }

// all gives the orders of a kind.
func (o *Orders) all(kind string) (version int64, out []InForce) {
	s := o.set.Load()
	if kind == KindCancel {
		return s.version, s.cancels
	}
	return s.version, s.pauses
}
