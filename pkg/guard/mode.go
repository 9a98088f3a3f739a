package guard

import (
	"math"
	"sync"
	"time"

	"tidegate/pkg/slice"
)

// mode knows the demand and whether it calls for protection. It is pure but for
// its lock: times and the cluster's news come in as arguments.
//
// The demand of the cluster is what the last flush returned and what was counted
// here since; it is short of what other nodes counted within the last flush.
type mode struct {
	cfg Config

	mu      sync.Mutex
	sum     int64 // the cluster's count at the last flush
	sumAt   time.Time
	flying  int64 // counted here and on the way to Redis
	unsent  int64 // counted here since
	local   *slice.Window
	until   time.Time // protection ends then, by what is known
	started int64     // its begin on the server's clock, 0 if not known
	since   time.Time // its begin on ours
	raise   bool      // protection began here and Redis does not know yet
	nodes   int       // to divide the gate by; 0 if not known
	heard   time.Time // when a flush last told
	fewer   int       // nodes that it told of, if fewer than that
	waned   time.Time // since when
}

// The share of a node becomes smaller at once, when it hears of another, and
// larger only when all others must have heard of it.
const (
	newsLife  = 500 * time.Millisecond // how long a node goes by what it heard
	growAfter = 250 * time.Millisecond // several flushes
)

func newMode(cfg Config) *mode { return &mode{cfg: cfg, local: slice.NewWindow(cfg.window())} }

// arrive counts one request and reports whether it meets protection, and whether
// it is the one that began it. shared says that the nodes hear of each other.
func (m *mode) arrive(now time.Time, shared bool) (protected, began bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	here := float64(m.local.Add(now, 1))
	m.unsent++
	if m.cfg.Threshold == 0 {
		began = m.since.IsZero()
		m.begin(now)
		return true, began
	}
	count, threshold := m.countLocked(now), float64(m.cfg.Threshold)
	if !shared {
		count, threshold = here, float64(m.ownThreshold(now))
	}
	switch on := now.Before(m.until); {
	case count > threshold:
		if on {
			return true, false
		}
		m.begin(now)
		return true, true
	case on && !shared && m.lingers(count, threshold):
		m.until = now.Add(m.cfg.ExitHold)
		return true, false
	default:
		return on, false
	}
}

// begin starts protection on this node at once; the next flush tells the others.
func (m *mode) begin(now time.Time) {
	if !now.Before(m.until) {
		m.since, m.started = now, 0
	}
	m.raise, m.until = true, now.Add(m.cfg.ExitHold)
}

// gateFull begins protection because fetches use every place.
func (m *mode) gateFull(now time.Time) (began bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	began = !now.Before(m.until)
	m.begin(now)
	return began
}

// lingers reports that the demand is not low enough to end protection.
func (m *mode) lingers(count, threshold float64) bool {
	return count >= m.cfg.ExitRatio*threshold
}

// ownThreshold is this node's share when it knows nothing of the others.
func (m *mode) ownThreshold(now time.Time) int64 {
	return max(m.cfg.Threshold/int64(m.ownNodes(now)), 1)
}

// countLocked is the demand of the window that ends now. What the last flush
// told leaves the window as it grows older; were it counted in full, a flush that
// takes long would look like demand.
func (m *mode) countLocked(now time.Time) float64 {
	left := max(1-float64(now.Sub(m.sumAt))/float64(m.cfg.Window), 0)
	return float64(m.sum)*left + float64(m.flying+m.unsent)
}

// report is what a flush tells the cluster.
type report struct {
	demand int64
	raise  bool
}

// take gives what there is to report.
func (m *mode) take() report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := report{demand: m.unsent, raise: m.raise}
	m.flying, m.unsent, m.raise = m.unsent, 0, false
	return r
}

// lost says that the report did not arrive, or may not have. Its demand is
// forgotten: this node decides by itself when Redis is away.
func (m *mode) lost(r report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flying = 0
	m.raise = m.raise || r.raise
}

// counted takes the cluster's count, and says whether protection is called for
// and whether it goes on.
func (m *mode) counted(now time.Time, sum int64) (raise, renew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum, m.sumAt, m.flying = sum, now, 0
	return sum > m.cfg.Threshold, m.lingers(float64(sum), float64(m.cfg.Threshold))
}

// hear takes the cluster's state.
func (m *mode) hear(now time.Time, p pulse) (began, ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := now.Before(m.until)
	m.meet(now, p.nodes)
	switch {
	case p.started != 0:
		if !was {
			m.since = now
		}
		m.started, m.until = p.started, now.Add(p.left)
	case !m.raise && m.cfg.Threshold > 0: // nobody began it here meanwhile
		m.until, m.started = time.Time{}, 0
	}
	on := now.Before(m.until)
	return on && !was, was && !on
}

// meet takes the number of nodes that a flush told of.
func (m *mode) meet(now time.Time, told int) {
	known := m.ownNodes(now)
	switch {
	case told >= known:
		m.nodes, m.waned = told, time.Time{}
	case m.waned.IsZero() || told > m.fewer || m.nodes != known:
		m.nodes, m.fewer, m.waned = known, told, now
	case now.Sub(m.waned) >= growAfter:
		m.nodes, m.waned = m.fewer, time.Time{}
	}
	m.heard = now
}

// ownNodes is the number of nodes to divide by: those that the last flush told
// of, or the largest number if that is long ago.
func (m *mode) ownNodes(now time.Time) int {
	if m.nodes > 0 && now.Sub(m.heard) < newsLife {
		return m.nodes
	}
	return m.cfg.Nodes
}

// forget drops the news of the other nodes: without Redis any number up to the
// largest may be there.
func (m *mode) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes, m.waned = 0, time.Time{}
}

// deaf reports that the news of the other nodes is old.
func (m *mode) deaf(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Sub(m.heard) >= newsLife
}

// gateShare is this node's part of the gate.
func (m *mode) gateShare(now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.cfg.Gate/m.ownNodes(now), 1)
}

// activation is when protection began, for ttl_start activation: on the server's
// clock for values of the cluster, on ours for those of this node.
func (m *mode) activation() (server int64, here time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.started, m.since
}

// modeView is the state for people.
type modeView struct {
	on        bool
	count     int64
	nodes     int
	threshold int64
}

func (m *mode) view(now time.Time, shared bool) modeView {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := modeView{on: now.Before(m.until) || m.cfg.Threshold == 0, count: int64(math.Ceil(m.countLocked(now))), threshold: m.cfg.Threshold, nodes: m.ownNodes(now)}
	if !shared {
		v.count, v.threshold = m.local.Sum(now), m.ownThreshold(now)
	}
	return v
}
