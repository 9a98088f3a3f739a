package app_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/app"
	"tidegate/pkg/config"
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
	require.Equal(t, []string{"tg.deadletters"}, of("deadletters", "Read"))
	require.Contains(t, of("deadletters", "Write"), "tg.card.callbacks")
	require.Empty(t, of("receipts", "Create"))
	require.Equal(t, []string{"tg."}, of("topics", "Create"))
	for _, l := range lines {
		require.NotContains(t, l, "*", "nothing is allowed on everything")
		require.Contains(t, l, " tg.", "another deployment's resource: %s", l)
	}
}

// Whoever keeps the cluster's list, or looks at queues, need not be allowed to
// read the secrets that the same file refers to.
func TestCommandsThatNeedNoSecretReadNone(t *testing.T) {
	src := app.Source{File: sampleFile(t, "proxy"), Set: map[string]string{"ops.addr": "127.0.0.1:1", "kafka.brokers": "127.0.0.1:1"}}
	require.NoError(t, os.RemoveAll(filepath.Join(filepath.Dir(src.File), "secrets")))
	_, err := app.LoadConfig(src.File, src.Set)
	require.ErrorIs(t, err, config.ErrNoSecret, "they are gone")
	var out bytes.Buffer
	require.NoError(t, app.ACLs(t.Context(), src, app.ACLOptions{Users: "bank-"}, &out))
	require.Contains(t, out.String(), "User:bank-proxy")
	require.ErrorIs(t, app.ACLs(t.Context(), src, app.ACLOptions{Apply: true}, &out), config.ErrNoSecret, "this one logs in")
	err = app.Queues(t.Context(), app.QueuesOptions{Source: src, Once: true, Out: &out})
	require.ErrorContains(t, err, "ask http://127.0.0.1:1: ", "it got as far as asking")
	src.Set["topics.prefix"] = "no prefix"
	require.ErrorIs(t, app.ACLs(t.Context(), src, app.ACLOptions{}, &out), app.ErrUsage)
}
