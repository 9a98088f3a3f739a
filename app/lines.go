package app

import (
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
	"tidegate/pkg/telemetry"
	"tidegate/sender/line"
)

const linesOp = "lines"

// lineConfigs are the lines of the configuration: those that it names, or one for
// each base URL.
func (w WeChatConfig) lineConfigs() []line.Config {
	if len(w.Lines) > 0 {
		return w.Lines
	}
	return line.Of(w.BaseURLs)
}

// lineOrders is each account's order of lines.
func (c Config) lineOrders() map[string][]string {
	out := make(map[string][]string, len(c.Accounts))
	for _, a := range c.Accounts {
		out[a.Name] = a.Lines
	}
	return out
}

// Lines makes the process's ways to WeChat, which follow what operators choose.
func (e *engines) Lines(live *steering) (*line.Fleet, error) {
	f, err := line.New(e.cfg.WeChat.lineConfigs(), e.cfg.WeChat.LineHealth, line.Deps{Log: e.log, Reg: e.reg, Alarms: e.Alarms()})
	if err != nil {
		return nil, err
	}
	if err := f.SetAccounts(e.cfg.lineOrders()); err != nil {
		return nil, err
	}
	live.WatchLines(func(chosen []control.LineChoice) {
		choices := make(map[string]line.Choice, len(chosen))
		for _, c := range chosen {
			choices[c.Account] = line.Choice{Line: c.Line, By: c.By, Reason: c.Reason, At: c.At, Until: c.ExpiresAt}
		}
		f.Choose(choices)
	})
	return f, nil
}

// linesHandler is the operations API of lines. Looking needs the scope read,
// choosing the scope steer.
type linesHandler struct {
	limitsHandler // answers and logs errors
	fleet         *line.Fleet
	node          string
}

// linesView is the answer of GET /ops/v1/lines.
type linesView struct {
	Node     string             `json:"node"` // that was asked; others may see lines in another way
	Lines    []line.View        `json:"lines"`
	Accounts []line.AccountView `json:"accounts"`
}

// lineRequest is the body of PUT /ops/v1/lines/choice.
type lineRequest struct {
	Account   string `json:"account"` // empty: every account that has no choice of its own
	Line      string `json:"line"`    // empty: as the configuration says
	Reason    string `json:"reason"`
	ExpiresIn string `json:"expires_in"` // a duration such as 2h; without it until it is taken back
}

// lineAnswer is what a choice was answered with.
type lineAnswer struct {
	Account string `json:"account,omitempty"`
	Line    string `json:"line,omitempty"`
	Version int64  `json:"version"`
	Until   string `json:"expires_at,omitempty"`
	Hash    string `json:"audit_hash"`
}

func (h linesHandler) list(w http.ResponseWriter, r *http.Request) {
	if _, err := api.ParseParams(r); err != nil {
		api.WriteProblem(w, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, linesView{Node: h.node, Lines: h.fleet.Lines(), Accounts: h.fleet.Accounts()})
}

func (h linesHandler) choose(w http.ResponseWriter, r *http.Request) {
	c, err := h.read(w, r)
	var e control.Entry
	if err == nil {
		e, err = h.panel.SetLine(r.Context(), c)
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	a := lineAnswer{Account: c.Account, Line: c.Line, Version: e.Version, Hash: e.Hash}
	if !e.ExpiresAt.IsZero() {
		a.Until = e.ExpiresAt.UTC().Format(time.RFC3339)
	}
	api.WriteJSON(w, http.StatusOK, a)
}

// read checks what is asked for against this node's lines and accounts.
func (h linesHandler) read(w http.ResponseWriter, r *http.Request) (c control.LineChange, err error) {
	if _, err := api.ParseParams(r); err != nil {
		return c, err
	}
	var q lineRequest
	if err := api.Decode(w, r, maxLimitBody, &q); err != nil {
		return c, err
	}
	c = control.LineChange{Account: q.Account, Line: q.Line, By: telemetry.OpsKeyName(r.Context()), Reason: q.Reason}
	known := slices.ContainsFunc(h.fleet.Accounts(), func(a line.AccountView) bool { return a.Account == q.Account })
	switch {
	case q.Account != "" && !known:
		return c, fault.New(fault.NotFound, linesOp, "there is no account %.60q; GET /ops/v1/lines lists them", q.Account).WithField("account")
	case q.Line != "" && !h.fleet.Has(q.Line):
		return c, fault.New(fault.NotFound, linesOp, "there is no line %.63q; GET /ops/v1/lines lists them", q.Line).WithField("line")
	case q.Line == "" && q.ExpiresIn != "":
		return c, fault.New(fault.Invalid, linesOp, "expires_in: what is taken back cannot expire").WithField("expires_in")
	}
	if q.ExpiresIn != "" {
		if c.ExpiresIn, err = time.ParseDuration(q.ExpiresIn); err != nil || c.ExpiresIn < time.Second {
			return c, fault.New(fault.Invalid, linesOp, "expires_in is %.40q: use a duration of at least a second, for example 2h", q.ExpiresIn).WithField("expires_in")
		}
	}
	return c, nil
}

// linesInto adds the endpoints of lines to the sender's part.
func linesInto(p *part, live *steering, f *line.Fleet, node string, log *zap.Logger) *part {
	h := linesHandler{limitsHandler{live.Panel, log.Named("lines")}, f, node}
	if p.ops == nil {
		p.ops = map[string]http.Handler{}
	}
	if p.steer == nil {
		p.steer = map[string]http.Handler{}
	}
	p.ops["GET /ops/v1/lines"] = http.HandlerFunc(h.list)
	p.steer["PUT /ops/v1/lines/choice"] = http.HandlerFunc(h.choose)
	return p
}
