package receipts

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/outhttp"
	"tidegate/receipts/report"
	"tidegate/receipts/webhook"
)

// ReportHook is an address that is sent the daily report of failures.
type ReportHook struct {
	// URL takes a POST of the JSON that GET /v1/reports/failures gives; empty for none.
	URL string `koanf:"url" secret:"true"`
	// Secret signs it as Standard Webhooks do (whsec_…).
	Secret string `koanf:"secret" secret:"true"`
	// Allow names what may be reached although it is not public.
	Allow []string `koanf:"allow"`
	// CAFile holds certificates that are trusted instead of the system's.
	CAFile string `koanf:"ca_file"`
}

const reportHookTimeout = 30 * time.Second

// check gives the field that cannot work and why; "" if all can.
func (h ReportHook) check() (field, why string) {
	if h.URL == "" {
		return "", ""
	}
	c, err := outhttp.New(outhttp.Options{Allow: h.Allow})
	if err != nil {
		return "allow", err.Error()
	}
	defer c.Close()
	if err := c.Check(h.URL); err != nil {
		return "url", err.Error()
	}
	if err := webhook.CheckSecret(h.Secret); err != nil {
		return "secret", err.Error()
	}
	return "", ""
}

// send tells the report. The id is the same for each try of one day's report, so
// that a receiver takes it once.
func (h ReportHook) send(ctx context.Context, rep *report.Report, now time.Time) error {
	op := "send report to " + outhttp.Redact(h.URL)
	body, err := json.Marshal(reportView(rep))
	if err != nil {
		return fault.Wrap(fault.Internal, op, err)
	}
	head, err := webhook.Sign(h.Secret, "failures-"+rep.Period.From.Format("2006-01-02"), now, body)
	if err != nil {
		return err
	}
	c, err := outhttp.New(outhttp.Options{Allow: h.Allow, CAFile: h.CAFile, Timeout: reportHookTimeout, MaxResponse: 64 << 10})
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := c.Do(ctx, outhttp.Request{Method: http.MethodPost, URL: h.URL, Header: head, Body: body})
	if err != nil {
		return err
	}
	if answer.Status < 200 || answer.Status > 299 {
		return fault.New(fault.Unavailable, op, "the receiver answered %d: it must answer 2xx", answer.Status)
	}
	return nil
}
