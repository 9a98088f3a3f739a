package drive

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Users are spread evenly, keep their door, and when a door goes only its own
// users move.
func TestOrderIsConsistent(t *testing.T) {
	doors := []Door{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	count, moved := map[string]int{}, 0
	for n := range 3000 {
		openid := fmt.Sprintf("oUser%022d", n)
		first := order(ByUser, doors, openid)
		require.Equal(t, first, order(ByUser, []Door{doors[2], doors[0], doors[1]}, openid))
		require.Equal(t, first[:1], order(Pinned, doors, openid))
		count[first[0].Name]++
		without := order(ByUser, doors[:2], openid)
		if first[0].Name == "c" {
			require.Equal(t, first[1], without[0], "the next door takes him")
			moved++
		} else {
			require.Equal(t, first[0], without[0])
		}
	}
	for _, n := range count {
		require.InDelta(t, 1000, n, 150)
	}
	require.Equal(t, count["c"], moved)
	seen := map[string]bool{}
	for range 100 {
		seen[order(AtRandom, doors, "o")[0].Name] = true
	}
	require.Len(t, seen, 3)
}
