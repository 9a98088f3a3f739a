package app_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"tidegate/pkg/alarm"
)

const prometheusDir = "../deployments/prometheus"

// ruleFile is what we look at of Prometheus' rules.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert       string
			Expr        string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

func rules(t *testing.T) ruleFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(prometheusDir, "tidegate.rules.yaml"))
	require.NoError(t, err)
	var f ruleFile
	require.NoError(t, yaml.Unmarshal(text, &f))
	return f
}

// sections gives each section of the runbook.
func sections(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(prometheusDir, "RUNBOOK.md"))
	require.NoError(t, err)
	out := map[string]string{}
	for _, s := range strings.Split(string(text), "\n## ")[1:] {
		name, body, _ := strings.Cut(s, "\n")
		require.NotContains(t, out, name, "the runbook has the section twice")
		out[name] = body
	}
	return out
}

// sources gives the Go code that is no test, by path.
func sources(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "test") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		out[filepath.ToSlash(path)] = string(text)
		return err
	}))
	return out
}

var (
	alarmConst   = regexp.MustCompile(`\b[aA]larm[A-Z]\w*\s*=\s*"([a-z_]+)"`)
	alarmLiteral = regexp.MustCompile(`alarm\.Alarm\{\s*(Name:\s*)?"`)
)

// fired lists the names of all alarms in the code: constants whose names begin
// with alarm, in packages that know the board.
func fired(t *testing.T) []string {
	t.Helper()
	code := sources(t)
	knows := map[string]bool{}
	for path, text := range code {
		if strings.Contains(text, `"tidegate/pkg/alarm"`) {
			knows[filepath.Dir(path)] = true
		}
		require.False(t, alarmLiteral.MatchString(text), "%s: name the alarm in a constant alarm…, so that the runbook is held to it", path)
	}
	var out []string
	for path, text := range code {
		for _, m := range alarmConst.FindAllStringSubmatch(text, -1) {
			if knows[filepath.Dir(path)] {
				out = append(out, m[1])
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Whoever is woken by an alarm finds out what it means and what to do.
func TestEveryAlarmHasATitleAndASectionInTheRunbook(t *testing.T) {
	book, names := sections(t), fired(t)
	require.Greater(t, len(names), 20, "the search must have found the alarms")
	for _, n := range names {
		require.Contains(t, book, n, "add a section to RUNBOOK.md")
		require.Contains(t, alarm.Names(), n, "add titles to pkg/alarm/catalog.go")
	}
	for _, n := range alarm.Names() {
		require.Contains(t, names, n, "pkg/alarm/catalog.go names an alarm that nobody fires")
	}
	anchors := map[string]bool{}
	for _, g := range rules(t).Groups {
		for _, r := range g.Rules {
			_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "RUNBOOK.md#")
			anchors[anchor] = true
			if anchor != "{{ $labels.name }}" {
				require.Contains(t, book, anchor, "%s", r.Alert)
				require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], "%s", r.Alert)
			}
			require.NotEmpty(t, r.Annotations["summary"], "%s", r.Alert)
			require.NotEmpty(t, r.Annotations["description"], "%s", r.Alert)
		}
	}
	for n, body := range book {
		for _, part := range []string{"**Users:**", "**Look:**", "**Do:**"} {
			require.Contains(t, body, part, "section %s", n)
		}
		require.True(t, anchors[n] || slices.Contains(names, n), "section %s is about no alarm", n)
		for _, link := range regexp.MustCompile(`\]\(#(\w+)\)`).FindAllStringSubmatch(body, -1) {
			require.Contains(t, book, link[1], "a link in section %s", n)
		}
	}
}

// TidegateAlarm speaks for what no rule of its own does, and not for the rest.
func TestEveryAlarmReachesPrometheusOnce(t *testing.T) {
	var own, excluded []string
	for _, g := range rules(t).Groups {
		for _, r := range g.Rules {
			if r.Alert == "TidegateAlarm" {
				excluded = strings.Split(regexp.MustCompile(`name!~"([^"]*)"`).FindStringSubmatch(r.Expr)[1], "|")
				continue
			}
			_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
			if slices.Contains(alarm.Names(), anchor) {
				own = append(own, anchor)
			}
		}
	}
	slices.Sort(own)
	require.Equal(t, slices.Compact(own), excluded)
}

var metricName = regexp.MustCompile(`\btidegate_[a-z0-9_]+\b`)

// A rule about a metric that nobody registers can never fire.
func TestEveryMetricOfTheRulesIsRegistered(t *testing.T) {
	var all strings.Builder
	for _, text := range sources(t) {
		all.WriteString(text)
	}
	code := all.String()
	prefixes := regexp.MustCompile(`"tidegate_[a-z_]+_"`).FindAllString(code, -1)
	for _, m := range regexp.MustCompile(`Namespace: "tidegate", Subsystem: "([a-z]+)"`).FindAllStringSubmatch(code, -1) {
		prefixes = append(prefixes, `"tidegate_`+m[1]+`_"`)
	}
	registered := func(name string) bool {
		name = strings.TrimSuffix(name, "_bucket")
		return strings.Contains(code, `"`+name+`"`) || slices.ContainsFunc(prefixes, func(p string) bool {
			rest, ok := strings.CutPrefix(name, strings.Trim(p, `"`))
			return ok && strings.Contains(code, `"`+rest+`"`)
		})
	}
	require.False(t, registered("tidegate_queue_dept"))
	seen := 0
	for _, g := range rules(t).Groups {
		for _, r := range g.Rules {
			for _, name := range metricName.FindAllString(r.Expr, -1) {
				seen++
				require.True(t, registered(name), "%s asks for %s, which no code registers", r.Alert, name)
			}
		}
	}
	require.Greater(t, seen, 30)
}
