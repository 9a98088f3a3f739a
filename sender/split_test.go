package sender

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSplitLosesNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		word := rapid.SampledFrom([]string{"你", "好。", "a", "bc ", "\n", "😀", `<a href="https://example.com/x">y</a>`, "é"})
		text := strings.TrimSpace(strings.Join(rapid.SliceOfN(word, 0, 900).Draw(r, "words"), ""))
		parts, ok := split(text)
		if !ok {
			if len(text) < maxPart*3 {
				r.Fatalf("%d bytes do not fit into %d parts", len(text), maxParts)
			}
			return
		}
		blanks := strings.NewReplacer(" ", "", "\n", "")
		if blanks.Replace(strings.Join(parts, "")) != blanks.Replace(text) {
			r.Fatal("the parts are not the text")
		}
		for _, p := range parts {
			if len(p) > maxPart || !utf8.ValidString(p) {
				r.Fatalf("a part of %d bytes, valid %v", len(p), utf8.ValidString(p))
			}
			if len(parts) > 1 && strings.Count(p, "<") != strings.Count(p, ">") {
				r.Fatalf("a tag was cut: %.40q … %.40q", p, p[len(p)-40:])
			}
		}
	})
}

func TestSplitAtTheLimit(t *testing.T) {
	parts, ok := split(strings.Repeat("x", maxPart))
	require.True(t, ok)
	require.Len(t, parts, 1)
	parts, ok = split(strings.Repeat("x", maxPart+1))
	require.True(t, ok)
	require.Equal(t, []int{maxPart, 1}, []int{len(parts[0]), len(parts[1])})
	parts, ok = split(strings.Repeat("😀", maxPart/4+1))
	require.True(t, ok)
	require.Equal(t, "😀", parts[1])
	_, ok = split(strings.Repeat("x", maxPart*maxParts+1))
	require.False(t, ok, "more than a window takes")
	parts, ok = split("\xff" + strings.Repeat("\xff", 2*maxPart)) // no text at all
	require.True(t, ok)
	require.Len(t, parts, 3)
}
