package guard

import (
	"encoding/json"
	"net/http"
	"time"
)

// View is a guard's state for people.
type View struct {
	Backend   string `json:"backend"`
	Mode      string `json:"mode"`   // pass or protect
	Shared    bool   `json:"shared"` // false: this node guards by itself
	Window    int64  `json:"window_requests"`
	Threshold int64  `json:"threshold_requests"`
	Nodes     int    `json:"nodes"`
	InFlight  int    `json:"in_flight"` // of this node, as are the next four
	Gate      int    `json:"gate"`
	Queued    int    `json:"queued"`
	Waiting   int    `json:"waiting"`
	Leases    int    `json:"leases"`
	Cached    int    `json:"cached_resources"` // of the cluster, or this node's when alone
	Breaker   bool   `json:"breaker_open"`
	Owed      int    `json:"invalidations_to_tell"`
	// Peak is the largest number of fetches at once on this node since the start.
	Peak int `json:"in_flight_peak"`
}

// View tells the state now.
func (g *Guard) View() View {
	shared := g.shared()
	m, s := g.mode.view(time.Now(), shared), g.gate.stats()
	v := View{
		Backend: g.cfg.Backend, Mode: "pass", Shared: shared, Window: m.count, Threshold: m.threshold, Nodes: m.nodes,
		InFlight: s.in, Gate: s.limit, Queued: s.waiting, Peak: s.peak, Breaker: g.backend.open(),
	}
	if m.on {
		v.Mode = "protect"
	}
	g.mu.Lock()
	v.Waiting, v.Owed, v.Cached = g.waiting, len(g.owed), g.last.resources
	for _, f := range g.flights {
		if f.leased {
			v.Leases++
		}
	}
	g.mu.Unlock()
	if !shared {
		v.Cached = g.local.len()
	}
	return v
}

// Handler answers GET …/{backend} with the state of one of the guards.
func Handler(guards ...*Guard) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		for _, g := range guards {
			if g.cfg.Backend == r.PathValue("backend") {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(g.View()) // the client went away: nobody is left to tell
				return
			}
		}
		http.Error(w, "there is no guard of this name here", http.StatusNotFound)
	})
}

// MaxValue is the largest value that is shared, in bytes.
func (g *Guard) MaxValue() int { return g.cfg.MaxValue }

// PersonalLife is how long after its last change a personal value lies in Redis at
// most; 0 if none is kept.
func (g *Guard) PersonalLife() time.Duration {
	if g.box == nil {
		return 0
	}
	return g.cfg.keep()
}
