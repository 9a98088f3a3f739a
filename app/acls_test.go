package app_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/app"
)

// S84: a role's user may touch what the role needs, of this deployment only.
func TestS84PermitsAreTheLeast(t *testing.T) {
	var out bytes.Buffer
	src := app.Source{File: sampleFile(t, "proxy"), Set: map[string]string{"topics.prefix": "tg"}}
	require.NoError(t, app.ACLs(t.Context(), src, app.ACLOptions{Users: "bank-"}, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	of := func(role, operation string) (names []string) {
		for _, l := range lines {
			f := strings.Fields(l)
			if f[2] == "User:bank-"+role && f[4] == operation {
				names = append(names, f[6])
			}
		}
		return names
	}
	require.ElementsMatch(t, []string{"tg.card.callbacks", "tg.receipts", "tg.repeats", "tg.deadletters"}, of("proxy", "Write"))
	require.Empty(t, of("proxy", "Read"), "the door reads nobody's messages")
	require.Equal(t, []string{"tg."}, of("proxy", "DescribeConfigs"), "the watch over the queues asks for their retention")
	require.ElementsMatch(t, []string{"tg.card.callbacks", "tg.robot.card"}, of("robot", "Read"))
	require.ElementsMatch(t, []string{"tg.card.replies", "tg.receipts", "tg.deadletters"}, of("robot", "Write"))
	require.NotContains(t, of("sender", "Read"), "tg.card.callbacks")
	require.Empty(t, of("receipts", "Create"))
	require.Equal(t, []string{"tg."}, of("topics", "Create"))
	for _, l := range lines {
		require.NotContains(t, l, "*", "nothing is allowed on everything")
		require.Contains(t, l, " tg.", "another deployment's resource: %s", l)
	}
}
