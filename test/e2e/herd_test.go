//go:build e2e

package e2e

import (
	"bytes"
	"io"
	"os"
	"testing"

	"tidegate/test/chaos/herd"
)

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }

// builds makes the binary once for all tests.
var builds = herd.NewBuilds("../..")

func TestMain(m *testing.M) {
	code := m.Run()
	builds.Close()
	os.Exit(code)
}
