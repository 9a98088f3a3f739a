package figures

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// save writes the picture and its numbers.
func (s *stage) save(ctx context.Context, f figure, d drawing) error {
	foot := s.smallPrint(ctx, f)
	c := d.chart
	c.Title, c.Foot = f.title, append(c.Foot, foot...)
	svg, err := c.SVG()
	if err != nil {
		return err
	}
	if s.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil { //nolint:gosec // figures are for everybody
		return err
	}
	path := filepath.Join(s.Dir, f.file)
	if err := os.WriteFile(path+".svg", svg, 0o644); err != nil { //nolint:gosec // figures are for everybody
		return err
	}
	s.progress("wrote %s.svg and .csv", path)
	return writeTable(path+".csv", append([]string{f.title}, c.Foot...), d)
}

func writeTable(path string, above []string, d drawing) error {
	var b strings.Builder
	for _, line := range above {
		b.WriteString("# " + line + "\n")
	}
	w := csv.NewWriter(&b)
	if err := w.Write(d.header); err != nil {
		return err
	}
	for _, row := range d.rows {
		cells := make([]string, len(row))
		for i, v := range row {
			cells[i] = cell(v)
		}
		if err := w.Write(cells); err != nil {
			return err
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o644) //nolint:gosec // figures are for everybody
}

// cell writes durations in seconds and everything else as it is.
func cell(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return fmt.Sprintf("%.4f", v.Seconds())
	case float64:
		return fmt.Sprintf("%.4g", v)
	}
	return fmt.Sprint(v)
}

// smallPrint says what made a figure, on what, when and from which commit. It
// names no host.
func (s *stage) smallPrint(ctx context.Context, f figure) []string {
	return []string{
		"made by " + s.command(f),
		fmt.Sprintf("%s, %d cores; %s; %s", processor(), runtime.NumCPU(), runtime.Version(), s.engines(ctx)),
		fmt.Sprintf("%s, commit %s", time.Now().UTC().Format("2006-01-02 15:04 UTC"), commit(ctx)),
	}
}

// command is what to type for this figure.
func (s *stage) command(f figure) string {
	text := fmt.Sprintf("tidegate figures --only %s --seconds %g", f.name, s.Seconds)
	if s.Short {
		text = "tidegate figures --only " + f.name + " --short"
	}
	if s.Kafka != nil && s.kafkaCfg != nil {
		text += " --kafka …"
	}
	if s.Redis != nil && s.redisCfg != nil {
		text += " --redis …"
	}
	return text
}

// processor is the model's name, as Linux tells it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// commit is what this binary was built from: as the linker noted it, or, for
// `go run`, which notes nothing, what is checked out here.
func commit(ctx context.Context) string {
	revision, changed := "", false
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value
			case "vcs.modified":
				changed = s.Value == "true"
			}
		}
	}
	if revision == "" {
		revision = git(ctx, "rev-parse", "HEAD")
		changed = git(ctx, "status", "--porcelain", "--untracked-files=no", "--", "*.go", "go.mod") != ""
	}
	if revision == "" {
		return "unknown"
	}
	if changed {
		return revision[:min(12, len(revision))] + " with changes"
	}
	return revision[:min(12, len(revision))]
}

func git(ctx context.Context, args ...string) string {
	out, err := exec.CommandContext(ctx, "git", args...).Output() //nolint:gosec // the arguments are ours
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
