package engine_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/robot/engine"
)

// The examples of docs/rules.md are put together and read.
func TestTheExamplesOfTheDocumentationLoad(t *testing.T) {
	page, err := os.ReadFile("../../docs/rules.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 2)
	src := strings.Replace(blocks[0][1], "rules: []", "rules:\n#", 1) + strings.ReplaceAll("\n"+blocks[1][1], "\n", "\n  ")
	r, err := engine.Parse("rules.md", []byte(src), engine.Known{})
	require.NoError(t, err)
	k := &talk{t: t, rules: r, at: began}
	require.Equal(t, "币种？", k.text("余额 1234"))
	require.Contains(t, k.text("美金"), "汇率")
	require.Equal(t, `call /balance {"day":"2026-09-30","digits":"1234"}`, k.text("2026-09-30"))
}
