//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }

// binary is built once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tidegate-e2e")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tidegate")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// process is one running role. It can be killed and started again with the
// same arguments and ports.
type process struct {
	t    *testing.T
	name string
	args []string
	ops  string // operations listener
	log  string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// start runs a role and waits until it says that it is ready.
func start(t *testing.T, name, ops string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, args: args, ops: ops, log: filepath.Join(logDir(t), name+".log")}
	p.launch()
	p.ready()
	t.Cleanup(p.terminate)
	return p
}

func logDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("TIDEGATE_TEST_LOGS"); dir != "" {
		dir = filepath.Join(dir, t.Name())
		require.NoError(t, os.MkdirAll(dir, 0o755))
		return dir
	}
	return t.TempDir()
}

func (p *process) launch() {
	p.t.Helper()
	path, err := binary()
	require.NoError(p.t, err)
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(p.t, err)
	defer f.Close()
	cmd := exec.Command(path, p.args...)
	cmd.Stdout, cmd.Stderr = f, f
	require.NoError(p.t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	p.mu.Lock()
	p.cmd, p.ended = cmd, ended
	p.mu.Unlock()
}

// ready waits for /readyz; a process that ends instead fails the test with
// the end of its log.
func (p *process) ready() {
	p.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		select {
		case <-p.ended:
			p.t.Fatalf("%s ended at its start:\n%s", p.name, p.tail())
		case <-time.After(50 * time.Millisecond):
		}
		if body, err := fetch("http://" + p.ops + "/readyz"); err == nil && body == "ready\n" {
			return
		}
	}
	p.t.Fatalf("%s did not become ready:\n%s", p.name, p.tail())
}

// kill9 ends the process without a word to it.
func (p *process) kill9() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Kill())
	<-p.ended
}

// restart starts it again after a kill.
func (p *process) restart() { p.t.Helper(); p.launch(); p.ready() }

// terminate asks the process to stop and checks that it does so cleanly.
func (p *process) terminate() {
	select {
	case <-p.ended:
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			p.t.Errorf("%s stopped with exit code %d:\n%s", p.name, code, p.tail())
		}
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
		p.t.Errorf("%s did not stop within 20 s of SIGTERM:\n%s", p.name, p.tail())
	}
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// metric sums a counter or gauge of the process over its labels; a process
// that is down counts 0.
func (p *process) metric(name string) float64 {
	body, err := fetch("http://" + p.ops + "/metrics")
	if err != nil {
		return 0
	}
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(body, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err == nil {
			sum += v
		}
	}
	return sum
}

func fetch(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), errors.Join(err)
}

// freeAddr finds a port that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
