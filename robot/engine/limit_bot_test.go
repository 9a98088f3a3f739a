package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/robot/engine"
)

// A limit holds for rules that ask a bot as well.
func TestLimitHoldsForBots(t *testing.T) {
	r, err := engine.Parse("rules.yaml", []byte(`
version: 1
rules:
  - name: old
    match: {default: true}
    limit: {rate: 1 per 10m, instead: {text: enough}}
    bot: old
`), engine.Known{})
	require.NoError(t, err)
	d, err := r.Decide(text("hello"))
	require.NoError(t, err)
	require.Equal(t, "old", d.Bot)
	require.NoError(t, d.Refuse())
	require.Empty(t, d.Bot)
	require.Equal(t, "enough", d.Replies[0].Text)
}
