package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
)

// A robot that dies makes its reply again, later and perhaps on another day: that
// must not make a second row.
func TestAReplyThatIsMadeAgainIsBornOnce(t *testing.T) {
	first := wire.Reply{ReceivedAt: 1_790_000_000_000, CreatedAt: 1_790_000_000_050}
	again := first
	again.CreatedAt += 24 * 60 * 60 * 1000
	require.Equal(t, first.BornAt(), again.BornAt())
	require.Equal(t, int64(7), (&wire.Reply{CreatedAt: 7}).BornAt(), "a letter without its callback's time")
}
