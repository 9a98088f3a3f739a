package dedupe

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A pipeline that is late fails everybody in it: one hiccup, not hundreds.
func TestOneHiccupDoesNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{after: 3, interval: time.Second, window: 50 * time.Millisecond}
		for range 500 {
			require.False(t, b.note(false, true))
		}
		require.True(t, b.allow())
		require.False(t, b.note(true, false))

		turns := 0
		for range 3 { // three pipelines in a row
			<-time.After(100 * time.Millisecond)
			for range 500 {
				if b.note(false, true) {
					turns++
				}
			}
		}
		require.Equal(t, 1, turns)
		require.False(t, b.allow())
		<-time.After(time.Second)
		require.True(t, b.allow(), "the probe")
		require.False(t, b.allow(), "one probe for each interval")
		require.True(t, b.note(true, false))
	})
}
