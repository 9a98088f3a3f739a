package control

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Knob is a limit of this node that can be changed while it runs.
type Knob struct {
	// Subject names it: robot.account.card, robot.backend.core,
	// sender.card.replies. The same on every node.
	Subject string
	// File is what the configuration says.
	File Limit
	// MustCap tells that this limit has no "no cap".
	MustCap bool
	// Apply makes the limit hold: now at once, target once the slow start is
	// over. Whoever registers the knob has begun with File, so it is called
	// first when something else is to hold. It must not call Knobs.
	Apply func(now, target Limit)
}

// Knobs are the knobs of one node. Rooms put theirs in; a nil *Knobs takes them
// and applies the file's values, so that a room needs no other case for a
// process without live settings.
type Knobs struct {
	slow time.Duration
	now  func() time.Time
	met  *metrics

	mu      sync.Mutex
	applied int64 // version of the settings
	rows    map[string]Row
	knobs   map[string]*knob
}

type knob struct {
	Knob
	at      Limit // what holds now
	ramp    ramp
	moving  bool
	problem string // why the row is not followed
}

func newKnobs(slow time.Duration, now func() time.Time, met *metrics) *Knobs {
	return &Knobs{slow: slow, now: now, met: met, rows: map[string]Row{}, knobs: map[string]*knob{}}
}

// Put registers a knob, or takes a changed value of the file. A new knob begins
// at what holds for it; where a live setting is in force it stays in force.
func (k *Knobs) Put(n Knob) {
	if k == nil {
		n.Apply(n.File, n.File)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.knobs[n.Subject]
	if old != nil {
		old.Knob = n
		k.turn(old, k.slow)
		return
	}
	made := &knob{Knob: n, at: n.File}
	k.knobs[n.Subject] = made
	k.turn(made, 0)
}

// Drop forgets knobs that are gone.
func (k *Knobs) Drop(subjects ...string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range subjects {
		delete(k.knobs, s)
	}
	k.count()
}

// take follows the settings of a version. The ones that a node finds when it
// starts hold at once: it has let nothing through yet.
func (k *Knobs) take(version int64, rows []Row) {
	k.mu.Lock()
	defer k.mu.Unlock()
	slow := k.slow
	if k.applied < 0 {
		slow = 0
	}
	k.rows = map[string]Row{}
	for _, r := range rows {
		if r.Kind == KindLimit {
			k.rows[r.Subject] = r
		}
	}
	for _, n := range k.knobs {
		k.turn(n, slow)
	}
	k.applied = version
	k.count()
}

// target is what a knob is led to, and why a setting is not followed.
func (k *Knobs) target(n *knob) (to Limit, problem string) {
	r, set := k.rows[n.Subject]
	if !set {
		return n.File, ""
	}
	l, err := limitOf(r.Value)
	if err == nil {
		err = l.Validate(n.MustCap)
	}
	if err != nil {
		return n.File, err.Error()
	}
	return l, ""
}

// turn begins to lead a knob to what should hold. Called with the lock.
func (k *Knobs) turn(n *knob, slow time.Duration) {
	to, problem := k.target(n)
	n.problem = problem
	leading := n.at
	if n.moving {
		leading = n.ramp.to
	}
	if to == leading {
		return
	}
	n.ramp = ramp{from: n.at, to: to, began: k.now(), over: slow}
	n.moving = true
	k.move(n)
}

// move brings a knob to where it should be by now.
func (k *Knobs) move(n *knob) {
	l, done := n.ramp.at(k.now())
	n.moving = !done
	n.at = l
	n.Apply(l, n.ramp.to)
}

// step moves every knob that is on its way.
func (k *Knobs) step() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.knobs {
		if n.moving {
			k.move(n)
		}
	}
}

// count is called with the lock.
func (k *Knobs) count() {
	set, bad := 0, 0
	for s, n := range k.knobs {
		if _, ok := k.rows[s]; ok {
			set++
		}
		if n.problem != "" {
			bad++
		}
	}
	k.met.overrides.Set(float64(set - bad))
	k.met.bad.Set(float64(bad))
}

// KnobState is how one knob of one node stands.
type KnobState struct {
	Subject string `json:"subject"`
	File    Limit  `json:"file"`
	Now     Limit  `json:"now"`
	Target  Limit  `json:"target"`
	MustCap bool   `json:"must_cap,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// states gives every knob by subject, and the version that they follow.
func (k *Knobs) states() (applied int64, out []KnobState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.knobs {
		s := KnobState{Subject: n.Subject, File: n.File, Now: n.at, Target: n.at, MustCap: n.MustCap, Problem: n.problem}
		if n.moving {
			s.Target = n.ramp.to
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b KnobState) int { return cmp.Compare(a.Subject, b.Subject) })
	return k.applied, out
}
