package app

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/robot/engine"
)

// rulesView shows which rules are at work in this process, by role, and whether
// a changed file was refused: a robot that goes on with old rules looks healthy
// otherwise.
type rulesView struct {
	mu      sync.Mutex
	roles   []rulesAtWork
	info    *prometheus.GaugeVec
	since   *prometheus.GaugeVec
	refused *prometheus.GaugeVec
}

// rulesAtWork is one role's part of the answer of GET /ops/v1/rules.
type rulesAtWork struct {
	Role    Role      `json:"role"`
	File    string    `json:"file"`
	Version string    `json:"version"`
	Rules   int       `json:"rules"`
	Since   time.Time `json:"since"`
	// Refused says why the file as it is now is not at work; nil if it is.
	Refused *rulesRefused `json:"refused,omitempty"`
}

type rulesRefused struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

func newRulesView(reg prometheus.Registerer) *rulesView {
	v := &rulesView{
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_rules_info", Help: "1 for the version of the rules file that is at work: the beginning of its SHA-256.",
		}, []string{"role", "version"}),
		since: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_rules_loaded_timestamp_seconds", Help: "When the rules that are at work were taken.",
		}, []string{"role"}),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidegate_rules_refused", Help: "1 while a changed rules or configuration file is refused and the old ones are at work.",
		}, []string{"role"}),
	}
	reg.MustRegister(v.info, v.since, v.refused)
	return v
}

// took notes rules that a role works by from now on.
func (v *rulesView) took(role Role, r *engine.Rules) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.of(role)
	v.info.DeleteLabelValues(string(role), w.Version)
	if w.Version != r.Version() || w.Since.IsZero() {
		w.Since = time.Now()
	}
	w.File, w.Version, w.Rules, w.Refused = r.File(), r.Version(), r.Len(), nil
	v.info.WithLabelValues(string(role), w.Version).Set(1)
	v.since.WithLabelValues(string(role)).Set(float64(w.Since.UnixMilli()) / 1000)
	v.refused.WithLabelValues(string(role)).Set(0)
}

// refuse notes that a changed file was not taken.
func (v *rulesView) refuse(role Role, why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of(role).Refused = &rulesRefused{At: time.Now(), Error: why.Error()}
	v.refused.WithLabelValues(string(role)).Set(1)
}

// of finds a role's entry, or makes it; called with the lock.
func (v *rulesView) of(role Role) *rulesAtWork {
	i := slices.IndexFunc(v.roles, func(w rulesAtWork) bool { return w.Role == role })
	if i < 0 {
		v.roles = append(v.roles, rulesAtWork{Role: role})
		i = len(v.roles) - 1
	}
	return &v.roles[i]
}

// ServeHTTP answers GET /ops/v1/rules.
func (v *rulesView) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	v.mu.Lock()
	answer := struct {
		Roles []rulesAtWork `json:"roles"`
	}{append([]rulesAtWork{}, v.roles...)}
	v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer)
}
