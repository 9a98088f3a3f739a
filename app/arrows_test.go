package app_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "tidegate"

var (
	rooms      = []string{"proxy", "robot", "sender", "receipts", "console"}
	ground     = []string{"pkg/wire", "pkg/fault", "pkg/run", "pkg/config", "pkg/telemetry", "pkg/idgen"}
	adapters   = []string{"pkg/kafka", "pkg/redis", "pkg/sqldb", "pkg/wechat"}
	mechanisms = []string{"pkg/dedupe", "pkg/ratelimit", "pkg/guard", "pkg/membership", "pkg/schedule", "pkg/control", "pkg/alarm", "pkg/credit"}
	twins      = map[string]string{"pkg/wechat/wechatsim": "pkg/wechat", "pkg/kafka/kafkamem": "pkg/kafka", "pkg/redis/redismem": "pkg/redis"}
	// owners lists which package alone may import a library.
	owners = map[string][]string{
		"github.com/IBM/sarama":                {"pkg/kafka"},
		"github.com/redis/go-redis":            {"pkg/redis"},
		"github.com/jackc/pgx":                 {"pkg/sqldb"},
		"github.com/ncruces/go-sqlite3":        {"pkg/sqldb"},
		"github.com/pressly/goose":             {"pkg/sqldb"},
		"github.com/twmb/franz-go/pkg/kfake":   {"pkg/kafka/kafkamem"},
		"github.com/alicebob/miniredis":        {"pkg/redis/redismem"},
		"github.com/alecthomas/kong":           {"."},
		"github.com/prometheus/client_golang/": {"pkg", "proxy", "robot", "sender", "receipts", "app", "console"},
	}
)

// TestArrows holds house.md's table of allowed imports: rooms know nothing of
// each other, packages know no room, each engine library has one importer.
func TestArrows(t *testing.T) {
	packages := 0
	for dir, imports := range importsByFolder(t) {
		packages++
		for _, imp := range imports {
			if inner, ours := strings.CutPrefix(imp, module+"/"); ours {
				require.True(t, allowed(dir, inner), "%s must not import %s (see the table of arrows in ARCHITECTURE.md)", dir, inner)
			}
			for lib, homes := range owners {
				if strings.HasPrefix(imp, lib) && !strings.HasPrefix(dir, "test/") {
					require.True(t, slices.ContainsFunc(homes, func(h string) bool { return within(dir, h) }), "%s must not import %s; it belongs into %v", dir, imp, homes)
				}
			}
		}
	}
	require.Greater(t, packages, 10, "the walk must have found the packages")
}

func allowed(dir, imp string) bool {
	if within(imp, "test") {
		return within(dir, "test")
	}
	top := first(dir)
	switch {
	case dir == ".":
		return within(imp, "app") || within(imp, "pkg/config") || within(imp, "pkg/telemetry")
	case top == "app":
		return true
	case top == "test":
		return within(imp, "app") || within(imp, "pkg") || within(imp, "client")
	case top == "client":
		return within(imp, "pkg/fault")
	case slices.Contains(rooms, top):
		return within(imp, top) || within(imp, "pkg")
	case top == "pkg":
		return slices.ContainsFunc(pkgMay(dir), func(p string) bool { return within(imp, p) })
	}
	return false
}

// pkgMay lists what a package under pkg may import.
func pkgMay(dir string) []string {
	if of, twin := twins[dir]; twin {
		return []string{of, "pkg/fault", "pkg/telemetry"}
	}
	seen := []string{"pkg/fault", "pkg/telemetry"}
	switch {
	case in(dir, ground):
		return []string{own(dir)}
	case in(dir, adapters):
		return append(seen, "pkg/crash", own(dir))
	case in(dir, mechanisms):
		return append(seen, "pkg/redis", "pkg/sqldb", "pkg/lease", "pkg/slice", "pkg/outhttp", "pkg/crash", own(dir))
	case in(dir, []string{"pkg/lease", "pkg/slice"}):
		return append(seen, "pkg/redis", own(dir))
	case in(dir, []string{"pkg/api", "pkg/outhttp"}):
		return append(seen, "pkg/sqldb", own(dir))
	}
	return nil // also pkg/crash, which imports nothing of ours
}

// own is the package under pkg that a folder belongs to.
func own(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	return parts[0] + "/" + parts[1]
}

func in(dir string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return within(dir, p) })
}

func within(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

func first(dir string) string { s, _, _ := strings.Cut(dir, "/"); return s }

// importsByFolder reads the imports of every file that is no test.
func importsByFolder(t *testing.T) map[string][]string {
	t.Helper()
	root := ".."
	out := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(rel)
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			out[dir] = append(out[dir], p)
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

// TestOwnersCard: the layout fixed by the project's owner.
func TestOwnersCard(t *testing.T) {
	for _, name := range []string{"proxy", "robot", "sender", "receipts", "pkg", "deployments", "go.mod", "README.md", "LICENSE"} {
		_, err := os.Stat(filepath.Join("..", name))
		require.NoError(t, err)
	}
}
