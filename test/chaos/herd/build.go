//go:build linux

package herd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Builds makes binaries of this module, each once for all tests of a package.
// A TestMain removes them with Close.
type Builds struct {
	root string

	mu   sync.Mutex
	dir  string
	made map[string]string
}

// NewBuilds takes the path of the module's root.
func NewBuilds(root string) *Builds { return &Builds{root: root, made: map[string]string{}} }

// Tidegate is the program itself.
func (b *Builds) Tidegate() (string, error) { return b.Make(".", "") }

// Make builds a package ("./test/chaos/kafkanode") with build tags.
func (b *Builds) Make(pkg, tags string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if path := b.made[pkg+" "+tags]; path != "" {
		return path, nil
	}
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "tidegate-built")
		if err != nil {
			return "", err
		}
		b.dir = dir
	}
	name := filepath.Base(pkg)
	if pkg == "." {
		name = "tidegate"
	}
	path := filepath.Join(b.dir, strings.Join(append([]string{name}, strings.Fields(strings.ReplaceAll(tags, ",", " "))...), "-"))
	cmd := exec.Command("go", "build", "-tags", tags, "-o", path, pkg) //nolint:noctx // the test's own limit bounds it
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s with tags %q: %w\n%s", pkg, tags, err, out)
	}
	b.made[pkg+" "+tags] = path
	return path, nil
}

// Close removes what was built.
func (b *Builds) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
	b.dir, b.made = "", map[string]string{}
}
