//go:build linux

package herd

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tidegate/test/chaos/history"
)

// Herd is the processes of one test.
type Herd struct {
	tb testing.TB
	// Dir is the run folder: a log for each process and whatever the test puts
	// there. It goes with the test, unless TIDEGATE_TEST_LOGS names a folder.
	Dir   string
	start *starter

	mu  sync.Mutex
	log *history.Writer
}

// New makes the run folder.
func New(tb testing.TB) *Herd {
	tb.Helper()
	h := &Herd{tb: tb, Dir: runDir(tb), start: newStarter()}
	tb.Cleanup(h.start.close)
	return h
}

func runDir(tb testing.TB) string {
	tb.Helper()
	keep := os.Getenv("TIDEGATE_TEST_LOGS")
	if keep == "" {
		return tb.TempDir()
	}
	dir, err := filepath.Abs(filepath.Join(keep, tb.Name()))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		tb.Fatalf("make the run folder (TIDEGATE_TEST_LOGS): %v", err)
	}
	return dir
}

// Record writes faults into the history from now on.
func (h *Herd) Record(w *history.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = w
}

func (h *Herd) note(e history.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.log != nil {
		h.log.Add(e)
	}
}

// Note writes a line for people into the history.
func (h *Herd) Note(format string, args ...any) {
	h.note(history.Event{Kind: history.Note, Text: fmt.Sprintf(format, args...)})
}

// Dice gives the random choices of a test and logs the command that makes the
// same ones again. What the processes do in between stays theirs.
func Dice(tb testing.TB, again string) *rand.Rand {
	tb.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("TIDEGATE_TEST_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			tb.Fatalf("TIDEGATE_TEST_SEED: %v", err)
		}
		seed = n
	}
	tb.Logf("seed %d; again: TIDEGATE_TEST_SEED=%d %s -count=1 -run '^%s$'", seed, seed, again, tb.Name())
	return rand.New(rand.NewPCG(seed, 0))
}

// FreeAddr finds a loopback port that nothing listens on. It stays below the
// range from which Linux takes the ports of outgoing connections, so that nobody
// has it by accident when a killed process comes back to it.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	for range 200 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.N(12000))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = l.Close()
		return addr
	}
	tb.Fatal("no free port between 20000 and 31999 on 127.0.0.1")
	return ""
}

// Wait looks every few milliseconds until done says yes, and fails the test if
// that takes longer than limit.
func Wait(tb testing.TB, what string, limit time.Duration, done func() bool) {
	tb.Helper()
	deadline := time.Now().Add(limit)
	for !done() {
		if time.Now().After(deadline) {
			tb.Fatalf("waited %s for %s", limit, what)
		}
		select {
		case <-tb.Context().Done():
			tb.Fatalf("the test ended while it waited for %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Environ is what a child gets: this process's environment, in which settings
// and switches of the tests must not become settings of the program, and more.
func Environ(more ...string) []string {
	var out []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TIDEGATE_") || strings.HasPrefix(kv, "TIDEGATE_CACHE_DIR=") {
			out = append(out, kv)
		}
	}
	return append(out, more...)
}
