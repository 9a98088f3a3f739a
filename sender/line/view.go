package line

import (
	"cmp"
	"slices"
	"time"

	"tidegate/pkg/wechat"
)

// View is one line for people. It shows no credentials of a proxy.
type View struct {
	Name      string `json:"name"`
	BaseURL   string `json:"base_url"`
	Proxy     string `json:"proxy,omitempty"` // its host and port
	State     State  `json:"state"`
	Since     string `json:"since"`
	Why       string `json:"why,omitempty"` // it was left
	BackIn    string `json:"back_in,omitempty"`
	Answered  int64  `json:"answered"`  // requests since this process began
	Lost      int64  `json:"lost"`      // that may have arrived
	Unreached int64  `json:"unreached"` // that were not sent
}

// AccountView is what an account takes.
type AccountView struct {
	Account string   `json:"account"`
	Order   []string `json:"order"` // as it is tried now
	Use     string   `json:"use"`
	Chosen  string   `json:"chosen,omitempty"` // by hand
	By      string   `json:"chosen_by,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Until   string   `json:"until,omitempty"`
}

// Lines gives every line as this process sees it.
func (f *Fleet) Lines() []View {
	now := f.now()
	out := make([]View, 0, len(f.lines))
	for _, s := range f.lines {
		s.mu.Lock()
		h := s.health
		v := View{
			Name: s.Name, BaseURL: s.where, Proxy: s.via, State: h.state(), Since: h.since.UTC().Format(time.RFC3339), Why: h.why,
			Answered: s.counts[wechat.Answered], Lost: s.counts[wechat.Lost], Unreached: s.counts[wechat.Unreached],
		}
		s.mu.Unlock()
		switch v.State {
		case Up:
			v.Why = ""
		case Recovering:
			v.BackIn = max(0, h.hold-now.Sub(h.good)).Round(time.Second).String()
		}
		out = append(out, v)
	}
	return out
}

// Has tells whether there is a line of this name.
func (f *Fleet) Has(name string) bool { return f.find(name) != nil }

// Accounts gives every account and the way that its next request takes.
func (f *Fleet) Accounts() []AccountView {
	f.mu.RLock()
	names := make([]string, 0, len(f.routes))
	for name := range f.routes {
		if name != "" {
			names = append(names, name)
		}
	}
	f.mu.RUnlock()
	slices.SortFunc(names, cmp.Compare)
	out := make([]AccountView, 0, len(names))
	for _, name := range names {
		v := AccountView{Account: name}
		for _, l := range f.Order(name) {
			v.Order = append(v.Order, l.Name)
		}
		f.mu.RLock()
		c := f.chosen(name)
		f.mu.RUnlock()
		v.Use, v.Chosen, v.By, v.Reason = v.Order[0], c.Line, c.By, c.Reason
		if !c.Until.IsZero() {
			v.Until = c.Until.UTC().Format(time.RFC3339)
		}
		out = append(out, v)
	}
	return out
}
