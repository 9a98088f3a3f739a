package engine_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/robot/engine"
)

// The rules that the documentation shows can be used as they are.
func TestRulesInTheDocumentation(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	seen := 0
	for _, name := range []string{"overload.md", "bindings.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		require.NoError(t, err)
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(b[1], "rules:") {
				continue
			}
			seen++
			_, err := engine.Parse(name, []byte("version: 1\nfallback: x\n"+b[1]), engine.Known{})
			require.NoError(t, err)
		}
	}
	require.Equal(t, 2, seen)
}
