package report

import (
	_ "embed"
	"html/template"
	"io"
	"time"

	"tidegate/receipts/store"
)

//go:embed report.html
var page string

// line is a row of the page.
type line struct {
	store.Failure
	Share       float64
	First, Last string
}

// HTML writes the report as one page without scripts or anything to load.
func (r *Report) HTML(w io.Writer) error {
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	lines := make([]line, len(r.Lines))
	for i, l := range r.Lines {
		lines[i] = line{Failure: l, Share: 100 * float64(l.Count) / float64(max(r.Total, 1)), First: r.clock(l.First), Last: r.clock(l.Last)}
	}
	const layout = "2006-01-02 15:04 MST"
	return t.Execute(w, map[string]any{
		"From": r.Period.From.Format(layout), "To": r.Period.To.In(r.Period.From.Location()).Format(layout),
		"Made": r.Made.Format(time.RFC3339), "Lines": lines, "Total": r.Total, "Columns": columns,
	})
}
