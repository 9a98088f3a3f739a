package control

import (
	"context"
	"encoding/json"
	"time"

	"tidegate/pkg/fault"
)

// cancelLife is how long a cancel stays if nobody says otherwise: longer than a
// letter stays in a queue, so that no copy of what it covers is ever sent.
const cancelLife = 30 * 24 * time.Hour

// OrderChange is what an operator asks for.
type OrderChange struct {
	Kind string // KindPause or KindCancel
	Name string // that the operator gives it
	// To is the order; nil takes it back.
	To        *Order
	By        string
	Reason    string
	ExpiresIn time.Duration // 0: a pause stays, a cancel stays for 30 days
	IfVersion *int64
}

// Orders are the pauses and cancels in force.
func (p *Panel) Orders() *Orders { return p.orders }

// SetOrder gives an order to every node, or takes it back. Kinds of errors are
// those of Store.Apply, and Final where this process has no database. Unlike a
// limit an order is taken also while nodes hold limits of a newer version than
// the database: whoever must stop something is not asked to restart first.
func (p *Panel) SetOrder(ctx context.Context, c OrderChange) (Entry, error) {
	const op = "set order"
	if c.Kind != KindPause && c.Kind != KindCancel {
		return Entry{}, fault.New(fault.Internal, op, "kind %.40q", c.Kind)
	}
	change := Change{Kind: c.Kind, Subject: c.Name, By: c.By, Reason: c.Reason, IfVersion: c.IfVersion}
	if c.To != nil {
		o, now := *c.To, p.o.Now()
		if c.Kind == KindCancel {
			if o.AcceptedBefore.IsZero() {
				o.AcceptedBefore = now
			}
			if c.ExpiresIn == 0 {
				c.ExpiresIn = cancelLife
			}
		}
		if err := o.Validate(); err != nil {
			return Entry{}, err
		}
		if !o.AcceptedBefore.IsZero() {
			o.AcceptedBefore = o.AcceptedBefore.UTC().Truncate(time.Millisecond)
		}
		text, err := json.Marshal(o)
		if err != nil {
			return Entry{}, fault.Wrap(fault.Internal, op, err)
		}
		change.Value = text
	}
	if c.ExpiresIn != 0 {
		change.ExpiresAt = p.o.Now().Add(c.ExpiresIn)
	}
	return p.apply(ctx, op, change)
}

// OrdersView is every order of a kind, and which nodes follow which version.
type OrdersView struct {
	Version      int64       `json:"version"`
	AgeMS        int64       `json:"age_ms"` // of this node's view; -1: it has seen nothing yet
	Off          string      `json:"off,omitempty"`
	Orders       []OrderView `json:"orders"`
	Nodes        []NodeView  `json:"nodes"`
	NodesUnknown string      `json:"nodes_unknown,omitempty"`
}

// OrderView is one order.
type OrderView struct {
	Name      string `json:"name"`
	Order     Order  `json:"order"`
	Version   int64  `json:"version"`
	By        string `json:"by"`
	Since     string `json:"since"`
	Reason    string `json:"reason"`
	ExpiresAt string `json:"expires_at,omitempty"`
	Problem   string `json:"problem,omitempty"`
}

// OrdersOverview lists the orders of a kind, as this node sees them.
func (p *Panel) OrdersOverview(ctx context.Context, kind string) OrdersView {
	version, all := p.orders.all(kind)
	v := OrdersView{Version: version, AgeMS: ageMS(p.view.Age()), Off: p.o.Off, Orders: make([]OrderView, 0, len(all))}
	for _, f := range all {
		o := OrderView{Name: f.Name, Order: f.Order, Version: f.Version, By: f.By, Since: clock(f.Since), Reason: f.Reason, Problem: f.Problem}
		if !f.Until.IsZero() {
			o.ExpiresAt = clock(f.Until)
		}
		v.Orders = append(v.Orders, o)
	}
	reports, why := p.reports(ctx)
	v.NodesUnknown = why
	for _, r := range reports {
		v.Nodes = append(v.Nodes, NodeView{Node: r.Node, Version: r.Version, AgeMS: r.AgeMS, SeenMS: r.seen.Milliseconds(), Off: r.Off})
	}
	return v
}
