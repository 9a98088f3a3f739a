package control

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// Overview is every limit as all nodes have it.
type Overview struct {
	Version   int64  `json:"version"`
	AgeMS     int64  `json:"age_ms"`        // of this node's view; -1: it has seen nothing yet
	Off       string `json:"off,omitempty"` // why nothing can be changed here
	SlowStart string `json:"slow_start"`
	// Behind says that nodes hold limits of a newer version than the database has,
	// so that nothing can be changed, and what to do.
	Behind string      `json:"behind,omitempty"`
	Limits []LimitView `json:"limits"`
	Nodes  []NodeView  `json:"nodes"`
	// NodesUnknown says why only this node is listed.
	NodesUnknown string `json:"nodes_unknown,omitempty"`
}

// LimitView is one limit.
type LimitView struct {
	Subject   string `json:"subject"`
	File      *Limit `json:"file,omitempty"` // nil: no live node has this limit
	Override  *Limit `json:"override,omitempty"`
	Effective *Limit `json:"effective,omitempty"`
	// Version is that of the override; 0 if there is none.
	Version   int64         `json:"version"`
	By        string        `json:"by,omitempty"`
	Since     string        `json:"since,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	ExpiresAt string        `json:"expires_at,omitempty"`
	Problem   string        `json:"problem,omitempty"`
	Nodes     []LimitAtNode `json:"nodes"`
	mustCap   bool
	steerable bool // some live node takes live settings for it
}

// LimitAtNode is what one node makes of a limit.
type LimitAtNode struct {
	Node string `json:"node"`
	File Limit  `json:"file"`
	Now  Limit  `json:"now"` // differs from the effective limit during a slow start
}

// NodeView is one node: the version that it applies.
type NodeView struct {
	Node    string `json:"node"`
	Version int64  `json:"version"` // -1: none yet
	AgeMS   int64  `json:"age_ms"`  // of its view; -1: it has seen nothing yet
	SeenMS  int64  `json:"seen_ms"` // since it said so
	Off     bool   `json:"off,omitempty"`
}

// Overview asks all nodes, by way of Redis, and puts their limits together.
func (p *Panel) Overview(ctx context.Context) Overview {
	o := Overview{AgeMS: ageMS(p.view.Age()), Off: p.o.Off, SlowStart: p.o.SlowStart.String()}
	var rows []Row
	o.Version, rows = p.view.Rows(KindLimit)
	reports, why := p.reports(ctx)
	o.NodesUnknown, o.Behind = why, p.behind(ctx, reports)
	limits := map[string]*LimitView{}
	for _, r := range reports {
		o.Nodes = append(o.Nodes, NodeView{Node: r.Node, Version: r.Version, AgeMS: r.AgeMS, SeenMS: r.seen.Milliseconds(), Off: r.Off})
		for _, s := range r.Limits {
			limitIn(limits, s.Subject).add(r, s)
		}
	}
	for _, row := range rows {
		limitIn(limits, row.Subject).override(row)
	}
	for _, l := range limits {
		o.Limits = append(o.Limits, *l)
	}
	slices.SortFunc(o.Limits, func(a, b LimitView) int { return strings.Compare(a.Subject, b.Subject) })
	return o
}

// reports gives every live node's, this one's as it is now.
func (p *Panel) reports(ctx context.Context) (all []report, unknown string) {
	own := p.self()
	if p.o.Redis == nil {
		return []report{own}, "this role has no Redis, so only its own process is seen"
	}
	all, err := nodes{p.o.Redis}.all(ctx)
	if err != nil {
		p.log.Debug("who applies which live settings cannot be asked", zap.Error(err))
		return []report{own}, "Redis does not answer, so only the process that was asked is seen"
	}
	all = slices.DeleteFunc(all, func(r report) bool { return r.Node == own.Node })
	all = append(all, own)
	slices.SortFunc(all, func(a, b report) int { return strings.Compare(a.Node, b.Node) })
	return all, ""
}

func limitIn(limits map[string]*LimitView, subject string) *LimitView {
	l := limits[subject]
	if l == nil {
		l = &LimitView{Subject: subject}
		limits[subject] = l
	}
	return l
}

// add takes what a node says of the limit. The file's value is that of the first
// node; nodes whose files differ show in the list.
func (l *LimitView) add(r report, s KnobState) {
	if l.File == nil {
		l.File, l.Effective = &s.File, &s.Target
	}
	l.mustCap = l.mustCap || s.MustCap
	l.steerable = l.steerable || !r.Off
	if s.Problem != "" {
		l.Problem = r.Node + ": " + s.Problem
	}
	l.Nodes = append(l.Nodes, LimitAtNode{Node: r.Node, File: s.File, Now: s.Now})
}

func (l *LimitView) override(r Row) {
	l.Version, l.By, l.Reason, l.Since = r.Version, r.By, r.Reason, clock(r.At)
	if !r.ExpiresAt.IsZero() {
		l.ExpiresAt = clock(r.ExpiresAt)
	}
	v, err := limitOf(r.Value)
	if err != nil {
		l.Problem = err.Error()
		return
	}
	l.Override = &v
	switch {
	case l.File == nil:
		l.Problem = "no live node has this limit"
	case !l.steerable:
		l.Problem = "the nodes that have this limit take no live settings"
	case l.Problem == "":
		l.Effective = &v
	}
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// LimitChange is what an operator asks for.
type LimitChange struct {
	Subject   string
	To        *Limit // nil goes back to the file's value
	By        string
	Reason    string
	ExpiresIn time.Duration // 0: it stays
	IfVersion *int64
}

// SetLimit changes a limit on every node, or takes the change back. Kinds of
// errors are those of Store.Apply; NotFound also for a limit that no live node
// has, Final where its nodes, or this process, have no database, or where a node
// holds limits of a newer version than the database.
func (p *Panel) SetLimit(ctx context.Context, c LimitChange) (Entry, error) {
	const op = "set limit"
	if _, err := p.store(); err != nil {
		return Entry{}, err
	}
	if err := p.inForce(ctx); err != nil {
		return Entry{}, err
	}
	change := Change{Kind: KindLimit, Subject: c.Subject, By: c.By, Reason: c.Reason, IfVersion: c.IfVersion}
	if c.To != nil {
		known, err := p.known(ctx, c.Subject)
		if err != nil {
			return Entry{}, err
		}
		if err := c.To.Validate(known.mustCap); err != nil {
			return Entry{}, fault.Wrap(fault.Invalid, op, err)
		}
		change.Value = c.To.json()
	}
	if c.ExpiresIn != 0 {
		change.ExpiresAt = p.o.Now().Add(c.ExpiresIn)
	}
	return p.apply(ctx, op, change)
}

// apply makes a change, and has every node look.
func (p *Panel) apply(ctx context.Context, op string, change Change) (Entry, error) {
	s, err := p.store()
	if err != nil {
		return Entry{}, err
	}
	e, err := s.Apply(ctx, change)
	if fault.KindOf(err) == fault.Denied {
		p.log.Warn("the database does not let this role change settings", zap.Error(err))
		return e, fault.New(fault.Final, op, "the database lets this role only read the settings: ask a node whose database user may write to the tables control, control_head and control_audit")
	}
	if err != nil {
		return Entry{}, err
	}
	p.log.Info("live setting changed", zap.String("kind", e.Kind), zap.String("subject", e.Subject), zap.String("by", e.By), zap.Int64("version", e.Version),
		zap.String("from", orNone(e.Old)), zap.String("to", orNone(e.New)), zap.String("audit_hash", e.Hash))
	p.announce(ctx, e.Version)
	return e, nil
}

// known finds a limit that some live node has.
func (p *Panel) known(ctx context.Context, subject string) (LimitView, error) {
	o := p.Overview(ctx)
	var names []string
	for _, l := range o.Limits {
		if l.File == nil {
			continue
		}
		if l.Subject == subject && !l.steerable {
			return l, fault.New(fault.Final, "set limit", "the nodes that have the limit %s take no live settings: give them the database (database.dsn) that this role has", subject)
		}
		if l.Subject == subject {
			return l, nil
		}
		names = append(names, l.Subject)
	}
	const shown = 20
	list := strings.Join(names[:min(len(names), shown)], ", ")
	if len(names) > shown {
		list += ", …"
	}
	if list == "" {
		list = "none"
	}
	why := ""
	if o.NodesUnknown != "" {
		why = " (" + o.NodesUnknown + ")"
	}
	return LimitView{}, fault.New(fault.NotFound, "set limit", "no live node has the limit %.80q%s; there are: %s", subject, why, list)
}

// store is the open store, or why there is none.
func (p *Panel) store() (*Store, error) {
	if p.o.Off != "" {
		return nil, fault.New(fault.Final, "live settings", "%s", p.o.Off)
	}
	s := p.view.open()
	if s == nil {
		return nil, fault.New(fault.Unavailable, "live settings", "the database has not been reached yet").WithRetryAfter(dialPause)
	}
	return s, nil
}

// Log gives audit entries, the newest first.
func (p *Panel) Log(ctx context.Context, q LogQuery) ([]Entry, error) {
	s, err := p.store()
	if err != nil {
		return nil, err
	}
	return s.Log(ctx, q)
}

// Verify holds the audit against itself and the settings.
func (p *Panel) Verify(ctx context.Context) (Proof, error) {
	s, err := p.store()
	if err != nil {
		return Proof{}, err
	}
	return s.Verify(ctx)
}
