package webhook

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/outhttp"
)

// View is the answer of GET /ops/v1/webhooks.
type View struct {
	Endpoints []EndpointView `json:"endpoints"`
}

// EndpointView tells how one endpoint stands. It shows the host and nothing more
// of an address, which may be a key.
type EndpointView struct {
	Endpoint     string `json:"endpoint"`
	App          string `json:"app"`
	Host         string `json:"host"`
	State        string `json:"state"` // ok, failing or disabled
	Pending      int64  `json:"pending"`
	OldestAt     string `json:"oldest_at,omitempty"`
	Failed       int64  `json:"failed"` // events that were given up and are still kept
	Failures     int64  `json:"failures_in_a_row,omitempty"`
	FailingSince string `json:"failing_since,omitempty"`
	LastOKAt     string `json:"last_ok_at,omitempty"`
	LastError    string `json:"last_error,omitempty"`
	DisabledAt   string `json:"disabled_at,omitempty"`
	DisabledWhy  string `json:"disabled_why,omitempty"`
}

// standing is the row of an endpoint, with what waits for it.
type standing struct {
	failures, failingSince, lastOK, disabledAt int64
	lastError, disabledWhy                     string
	pending, oldest, failed                    int64
}

// standings reads how every configured endpoint stands.
func (h *Hub) standings(ctx context.Context) (map[string]*standing, error) {
	out := map[string]*standing{}
	rows, err := h.d.DB.Query(ctx, "SELECT endpoint, failures, failing_since, last_ok_at, last_error, disabled_at, disabled_why FROM webhook_endpoints")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var s standing
		if err := rows.Scan(&name, &s.failures, &s.failingSince, &s.lastOK, &s.lastError, &s.disabledAt, &s.disabledWhy); err != nil {
			return nil, err
		}
		if h.endpoints[name] != nil {
			out[name] = &s
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return out, h.addWaiting(ctx, out)
}

func (h *Hub) addWaiting(ctx context.Context, to map[string]*standing) error {
	rows, err := h.d.DB.Query(ctx, "SELECT endpoint, state, COUNT(*), MIN(created_at) FROM webhook_events WHERE state <> 'delivered' GROUP BY endpoint, state")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, state string
		var n, oldest int64
		if err := rows.Scan(&name, &state, &n, &oldest); err != nil {
			return err
		}
		s := to[name]
		switch {
		case s == nil: // not configured any more
		case state == pending:
			s.pending, s.oldest = n, oldest
		default:
			s.failed = n
		}
	}
	return rows.Err()
}

// View tells how the endpoints stand, by name.
func (h *Hub) View(ctx context.Context) (View, error) {
	all, err := h.standings(ctx)
	if err != nil {
		return View{}, err
	}
	v := View{Endpoints: []EndpointView{}}
	for name, s := range all {
		p := h.endpoints[name]
		e := EndpointView{Endpoint: name, App: p.app, State: "ok", Pending: s.pending, Failed: s.failed, Failures: s.failures, OldestAt: clock(s.oldest),
			FailingSince: clock(s.failingSince), LastOKAt: clock(s.lastOK), LastError: s.lastError, DisabledAt: clock(s.disabledAt), DisabledWhy: s.disabledWhy}
		if e.Host = name[len(p.app):]; e.Host == "" {
			e.Host = outhttp.Redact(p.url)
		} else {
			e.Host = e.Host[1:]
		}
		switch {
		case s.disabledAt > 0:
			e.State = "disabled"
		case s.failures > 0:
			e.State = "failing"
		default:
			e.LastError = ""
		}
		v.Endpoints = append(v.Endpoints, e)
	}
	slices.SortFunc(v.Endpoints, func(a, b EndpointView) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return v, nil
}

// Known reports whether an endpoint is configured.
func (h *Hub) Known(endpoint string) error {
	if h.endpoints[endpoint] == nil {
		return fault.New(fault.NotFound, "find webhook endpoint", "there is no endpoint %.80q: 'tidegate webhooks list' names them", endpoint).WithField("endpoint")
	}
	return nil
}

func clock(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}
