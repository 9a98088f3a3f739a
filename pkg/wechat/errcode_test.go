package wechat

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table that people read is the table that decides.
func TestTheTableIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/delivery.md")
	require.NoError(t, err)
	rows := map[string]string{}
	for _, l := range strings.Split(string(text), "\n") {
		if cells := strings.Split(l, " | "); len(cells) == 3 && strings.HasPrefix(l, "| `") {
			rows[strings.Trim(cells[0], "| `")] = strings.Trim(cells[2], " |")
		}
	}
	seen := map[int]Action{}
	for _, g := range codeGroups {
		var codes []string
		for _, c := range g.codes {
			require.NotContains(t, seen, c, "%d is in two groups", c)
			seen[c] = g.action
			codes = append(codes, strconv.Itoa(c))
		}
		require.Equal(t, strings.Join(codes, ", "), rows[string(g.action)], "the row %s of docs/delivery.md", g.action)
	}
	require.Len(t, rows, len(codeGroups)+1, "every group and unknown")
	require.Contains(t, rows, string(ActionUnknown))
}
