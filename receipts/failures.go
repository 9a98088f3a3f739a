package receipts

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
	"tidegate/receipts/report"
	"tidegate/receipts/store"
)

// maxReport is the longest period of one report.
const maxReport = 92 * 24 * time.Hour

// failures answers GET /v1/reports/failures as JSON, CSV or HTML. Without
// from and to it covers the last 24 hours.
func (r *Room) failures(w http.ResponseWriter, req *http.Request, app api.App) error {
	p, err := api.ParseParams(req, "account", "app", "template_id", "from", "to", "format")
	if err != nil {
		return err
	}
	f := store.Filter{App: p.Get("app"), Template: p.Get("template_id")}
	if err := visible(&f, app, p.Get("account")); err != nil {
		return err
	}
	period, err := r.period(p)
	if err != nil {
		return err
	}
	format := p.Get("format")
	if format != "" && format != "json" && format != "csv" && format != "html" {
		return fault.New(fault.Invalid, readOp, "format is %q: use json, csv or html", format).WithField("format")
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	rep, err := report.MakeFor(ctx, r.store, f, period, r.d.Now())
	if err != nil {
		return err
	}
	switch format {
	case "csv":
		return writeReport(w, "text/csv; charset=utf-8", "failures-"+period.From.Format("2006-01-02")+".csv", rep.CSV)
	case "html":
		return writeReport(w, "text/html; charset=utf-8", "", rep.HTML)
	}
	api.WriteJSON(w, http.StatusOK, reportView(rep))
	return nil
}

func (r *Room) period(p api.Params) (report.Period, error) {
	var out report.Period
	from, err := moment(p.Get("from"), "from")
	if err != nil {
		return out, err
	}
	to, err := moment(p.Get("to"), "to")
	if err != nil {
		return out, err
	}
	if to.IsZero() {
		to = r.d.Now()
	}
	if from.IsZero() {
		from = to.Add(-24 * time.Hour)
	}
	if !from.Before(to) || to.Sub(from) > maxReport {
		return out, fault.New(fault.Invalid, readOp, "the time from %s to %s: use at most %d days, from before to", from.Format(time.RFC3339), to.Format(time.RFC3339), int(maxReport.Hours()/24)).WithField("from")
	}
	return report.Period{From: from.In(r.loc), To: to.In(r.loc)}, nil
}

// writeReport answers with a whole document; one that cannot be made is an
// error instead of half a document.
func writeReport(w http.ResponseWriter, contentType, file string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	if file != "" {
		h.Set("Content-Disposition", `attachment; filename="`+file+`"`)
	}
	_, _ = w.Write(b.Bytes()) // the client went away: nobody is left to tell
	return nil
}

// failureView is one line of the JSON report.
type failureView struct {
	Account    string     `json:"account"`
	App        string     `json:"app,omitempty"`
	TemplateID string     `json:"template_id,omitempty"`
	Kind       wire.Kind  `json:"kind"`
	State      wire.State `json:"state"`
	ErrCode    int        `json:"errcode,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Count      int64      `json:"count"`
	FirstAt    string     `json:"first_at"`
	LastAt     string     `json:"last_at"`
}

type reportJSON struct {
	From     string        `json:"from"`
	To       string        `json:"to"`
	Total    int64         `json:"total"`
	Failures []failureView `json:"failures"`
}

func reportView(r *report.Report) reportJSON {
	out := reportJSON{From: clock(r.Period.From.UnixMilli()), To: clock(r.Period.To.UnixMilli()), Total: r.Total, Failures: make([]failureView, len(r.Lines))}
	for i, l := range r.Lines {
		out.Failures[i] = failureView{Account: l.Account, App: l.App, TemplateID: l.Template, Kind: l.Kind, State: l.State, ErrCode: l.ErrCode,
			Reason: l.Reason, Count: l.Count, FirstAt: clock(l.First), LastAt: clock(l.Last)}
	}
	return out
}
