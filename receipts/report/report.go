// Package report makes the report of failures: which messages did not reach
// their user, by reason, as CSV for a spreadsheet and as HTML to read and
// print, headed in English and Chinese. It holds counts only: no follower can
// be found in it.
//
// A reason may be text that somebody else wrote. In CSV a cell that a
// spreadsheet would run as a formula begins with an apostrophe (S55); in HTML
// everything is escaped by its context (S54).
package report

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"tidegate/receipts/store"
)

// Source is where the lines come from; a store is one.
type Source interface {
	Failures(ctx context.Context, f store.Filter) ([]store.Failure, error)
}

// Period is the time of the report, from From until before To.
type Period struct{ From, To time.Time }

// Report is the failures of a period.
type Report struct {
	Period Period
	Made   time.Time
	Lines  []store.Failure
	Total  int64
}

// Make reads all failures of a period.
func Make(ctx context.Context, s Source, p Period, now time.Time) (*Report, error) {
	return MakeFor(ctx, s, store.Filter{}, p, now)
}

// MakeFor reads the failures of a period that a filter selects.
func MakeFor(ctx context.Context, s Source, f store.Filter, p Period, now time.Time) (*Report, error) {
	f.From, f.To = p.From, p.To
	lines, err := s.Failures(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read failures from %s to %s: %w", p.From.Format(time.RFC3339), p.To.Format(time.RFC3339), err)
	}
	r := &Report{Period: p, Made: now.In(p.From.Location()), Lines: lines}
	for _, l := range lines {
		r.Total += l.Count
	}
	return r, nil
}

// WriteFiles writes failures-<date>.csv and .html into a directory, which it
// makes if needed, and gives their paths. The date is the period's first day.
// Each file appears whole or not at all.
func (r *Report) WriteFiles(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make directory of reports: %w", err)
	}
	base := filepath.Join(dir, "failures-"+r.Period.From.Format("2006-01-02"))
	var files []string
	for _, f := range []struct {
		suffix string
		write  func(io.Writer) error
	}{{".csv", r.CSV}, {".html", r.HTML}} {
		var b bytes.Buffer
		if err := f.write(&b); err != nil {
			return files, fmt.Errorf("write report: %w", err)
		}
		if err := replace(base+f.suffix, b.Bytes()); err != nil {
			return files, fmt.Errorf("write report: %w", err)
		}
		files = append(files, base+f.suffix)
	}
	return files, nil
}

// replace puts a file in place of the old one in one step.
func replace(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
