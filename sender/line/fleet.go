package line

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/fault"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat"
)

// Deps is what a fleet works with.
type Deps struct {
	Log    *zap.Logger
	Reg    prometheus.Registerer
	Alarms *alarm.Board     // nil tells nobody
	Now    func() time.Time // nil: the real clock
}

// Fleet is all lines, and who takes which. It is the wechat.Lines of the
// sender's client, and safe for concurrent use.
type Fleet struct {
	health Health
	log    *zap.Logger
	alarms *alarm.Board
	now    func() time.Time
	met    *metrics
	lines  []*state // in the order of the configuration; never changes

	mu      sync.RWMutex
	routes  map[string]*route // by account; "" serves whom nobody named
	choices map[string]Choice
}

// state is one line and how it stands.
type state struct {
	Config
	where, via string // for people: hosts without credentials
	probe      *wechat.Line
	poke       chan struct{}

	mu     sync.Mutex
	health health
	counts [3]int64 // of what came of requests
}

// route is one account's ways: by the lines of its order, and behind them by the
// others, which an operator may choose.
type route struct{ ways []way }

type way struct {
	*wechat.Line
	of     *state
	listed bool
}

// New prepares lines; nothing is looked at before Run.
func New(lines []Config, h Health, d Deps) (*Fleet, error) {
	if err := Validate(lines); err != nil {
		return nil, fault.Wrap(fault.Invalid, "new lines", err)
	}
	if err := h.Validate(); err != nil {
		return nil, fault.Wrap(fault.Invalid, "new lines", err)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	met, err := newMetrics(telemetry.Registerer(d.Reg))
	if err != nil {
		return nil, fmt.Errorf("new lines: %w", err)
	}
	f := &Fleet{health: h, log: d.Log.Named("lines"), alarms: d.Alarms, now: d.Now, met: met, routes: map[string]*route{}}
	for _, c := range lines {
		s, err := newState(c, h, d.Now())
		if err != nil {
			return nil, err
		}
		f.lines = append(f.lines, s)
		f.met.show(c.Name, Up)
	}
	return f, f.SetAccounts(nil)
}

func newState(c Config, h Health, now time.Time) (*state, error) {
	s := &state{Config: c, where: c.BaseURL, poke: make(chan struct{}, 1), health: health{hold: h.Hold, since: now}}
	proxy, err := c.ProxyURL()
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		s.via = proxy.Host
	}
	s.probe, err = s.open(h, true)
	return s, err
}

// open makes connections of its own to the line. fresh makes one for each request.
func (s *state) open(h Health, fresh bool) (*wechat.Line, error) {
	proxy, err := s.ProxyURL()
	if err != nil {
		return nil, err
	}
	t := wechat.NewTransport(proxy, h.ConnectTimeout)
	t.DisableKeepAlives = fresh
	var secrets []string
	if proxy != nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		secrets = []string{password, proxy.User.String()}
	}
	return wechat.NewLine(s.Name, s.BaseURL, t, secrets...)
}

// SetAccounts replaces the accounts' orders, by name; an empty order is that of
// the configuration. Those that stay keep their connections. A bad order changes
// nothing.
func (f *Fleet) SetAccounts(orders map[string][]string) error {
	configs := make([]Config, len(f.lines))
	for i, s := range f.lines {
		configs[i] = s.Config
	}
	for account, order := range orders {
		if err := CheckOrder(configs, order); err != nil {
			return fault.New(fault.Invalid, "set lines of "+account, "%w", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := make(map[string]*route, len(orders)+1)
	for account, order := range orders {
		if err := f.lay(next, account, order); err != nil {
			return err
		}
	}
	if err := f.lay(next, "", nil); err != nil {
		return err
	}
	for account, r := range f.routes {
		if next[account] == nil {
			r.closeIdle()
			f.met.forget(account)
		}
	}
	f.routes = next
	return nil
}

// lay puts a route into next. Called with mu held.
func (f *Fleet) lay(next map[string]*route, account string, order []string) error {
	r, was := &route{}, f.routes[account]
	listed := f.inOrder(order)
	for _, s := range listed {
		w, err := was.by(s, f.health)
		if err != nil {
			return err
		}
		r.ways = append(r.ways, way{w, s, true})
	}
	for _, s := range f.lines {
		if slices.Contains(listed, s) {
			continue
		}
		w, err := was.by(s, f.health)
		if err != nil {
			return err
		}
		r.ways = append(r.ways, way{w, s, false})
	}
	next[account] = r
	return nil
}

// by gives the connections by a line that the route has already, or new ones.
func (r *route) by(s *state, h Health) (*wechat.Line, error) {
	if r != nil {
		for _, w := range r.ways {
			if w.of == s {
				return w.Line, nil
			}
		}
	}
	return s.open(h, false)
}

func (f *Fleet) inOrder(order []string) []*state {
	if len(order) == 0 {
		return f.lines
	}
	out := make([]*state, 0, len(order))
	for _, name := range order {
		out = append(out, f.find(name))
	}
	return out
}

func (f *Fleet) find(name string) *state {
	for _, s := range f.lines {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (r *route) closeIdle() {
	for _, w := range r.ways {
		w.CloseIdle()
	}
}

// CloseIdle implements wechat.Lines.
func (f *Fleet) CloseIdle() {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, r := range f.routes {
		r.closeIdle()
	}
}
