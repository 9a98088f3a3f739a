package plugin_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/robot/plugin"
)

// The example of docs/engine-plugin.md is built and asked.
func TestTheExampleOfTheDocumentationAnswers(t *testing.T) {
	page, err := os.ReadFile("../../docs/engine-plugin.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "```go\n")
	require.True(t, ok)
	source, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example\n\ngo 1.24\n"), 0o600))
	program := filepath.Join(dir, "engine")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, cancel := context.WithCancel(t.Context())
	run := exec.CommandContext(ctx, program)
	run.Env = []string{"SECRET=" + secret, "ADDR=" + addr}
	require.NoError(t, run.Start())
	t.Cleanup(func() { cancel(); _ = run.Wait() })
	url := "http://" + addr + "/"
	require.Eventually(t, func() bool {
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := c.Get(url)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	}, 20*time.Second, 20*time.Millisecond, "without a signature it answers nobody")

	said, err := client(t, config(url), plugin.Options{Now: time.Now}).Ask(t.Context(), callback(), ask())
	require.NoError(t, err)
	require.Equal(t, "You said: hello", said.Replies[0].Text)
	other := config(url)
	other.Secret, other.PrevSecret = "another secret of some length", secret
	_, err = client(t, other, plugin.Options{Now: time.Now}).Ask(t.Context(), callback(), ask())
	require.NoError(t, err, "the secret before is still accepted")
	other.PrevSecret = ""
	_, err = client(t, other, plugin.Options{Now: time.Now}).Ask(t.Context(), callback(), ask())
	require.Error(t, err)
}
