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
	// Apply makes a step hold. It is called when the knob is put in, with each
	// new version of the settings, and on the way up. It must not call Knobs.
	Apply func(Step)
}

// Step is one step on the way of a limit.
type Step struct {
	Now    Limit // holds now
	Target Limit // is reached after Left, in a straight line
	Left   time.Duration
	// Version is that of the settings. Whatever one limiter for several nodes is
	// told, the highest version is right.
	Version int64
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
	newest  int64 // the highest that was ever applied: limiters do not go back
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
		n.Apply(Step{Now: n.File, Target: n.File})
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	slow := k.slow
	it := k.knobs[n.Subject]
	if it == nil {
		it, slow = &knob{at: n.File, ramp: ramp{to: n.File}}, 0
		k.knobs[n.Subject] = it
	}
	it.Knob = n
	k.turn(it, slow)
	k.count()
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
	k.applied, k.newest = version, max(k.newest, version)
	for _, n := range k.knobs {
		k.turn(n, slow)
	}
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

// turn leads a knob to what should hold. Called with the lock.
func (k *Knobs) turn(n *knob, slow time.Duration) {
	to, problem := k.target(n)
	n.problem = problem
	if to != n.ramp.to {
		n.ramp = ramp{from: n.at, to: to, began: k.now(), over: slow}
	}
	k.move(n)
}

// move brings a knob to where it should be by now.
func (k *Knobs) move(n *knob) {
	s, done := n.ramp.step(k.now())
	s.Version = max(k.applied, 0)
	n.moving, n.at = !done, s.Now
	n.Apply(s)
}

// step moves every knob that is on its way. A rate moves by itself once its
// limiter knows where to and how fast; places are handed out here.
func (k *Knobs) step() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.knobs {
		if !n.moving {
			continue
		}
		if l, done := n.ramp.at(k.now()); !done && l.Concurrency == n.at.Concurrency {
			n.at = l
			continue
		}
		k.move(n)
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

// states gives every knob by subject, the version that they follow, and the newest
// that they ever did.
func (k *Knobs) states() (applied, newest int64, out []KnobState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.knobs {
		out = append(out, KnobState{Subject: n.Subject, File: n.File, Now: n.at, Target: n.ramp.to, MustCap: n.MustCap, Problem: n.problem})
	}
	slices.SortFunc(out, func(a, b KnobState) int { return cmp.Compare(a.Subject, b.Subject) })
	return k.applied, k.newest, out
}
