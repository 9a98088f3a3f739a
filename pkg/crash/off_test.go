//go:build !crash

package crash_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/crash"
)

// Without the tag a point does nothing, whatever the environment says, and
// costs nothing: what brings the instant about is not even made.
func TestNothing(t *testing.T) {
	t.Setenv("TIDEGATE_CRASH_AT", "CP1:1")
	t.Setenv("TIDEGATE_LIVELOCK", "CP1:1")
	big := make([]byte, 1<<10)
	n := testing.AllocsPerRun(100, func() {
		crash.At("CP1")
		crash.With("CP6", func() { big = append(big, big...) })
	})
	require.Zero(t, n)
	require.Len(t, big, 1<<10)
	require.False(t, crash.Enabled)
}

func BenchmarkAt(b *testing.B) {
	for b.Loop() {
		crash.At("CP1")
	}
}
