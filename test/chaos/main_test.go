//go:build chaos

package chaos

import (
	"os"
	"testing"

	"tidegate/test/chaos/herd"
)

const root = "../.."

// builds makes the binaries once for all tests.
var builds = herd.NewBuilds(root)

func TestMain(m *testing.M) {
	code := m.Run()
	builds.Close()
	os.Exit(code)
}
