package app

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/telemetry"
	"tidegate/robot/engine"
	"tidegate/robot/history"
)

const eraseConfig = `
kafka: {brokers: ["127.0.0.1:1"]}
redis: {addrs: ["%s"], timeout: 2s}
rules: '%s'
robot: {history: {keep: 3, key: QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=}}
accounts:
`

// The command erases what a robot keeps, with the key that it takes and only with
// --yes, and says what is gone.
func TestEraseOverTheOperationsListener(t *testing.T) {
	cache, err := redismem.Start("")
	require.NoError(t, err)
	defer cache.Close()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, fmt.Appendf(nil, gateRules, "nine"), 0o600))
	config := filepath.Join(filepath.Dir(rules), "tidegate.yaml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(eraseConfig, cache.Addr(), rules)+fmt.Sprintf(gateAccount, "card")), 0o600))
	c, err := loadFor(Source{File: config}, RoleRobot)
	require.NoError(t, err)
	keys := map[string]string{}
	for _, scope := range []string{telemetry.ScopeRead, telemetry.ScopePersonal} {
		text, hash := telemetry.NewOpsKey()
		keys[scope] = text
		c.Ops.Keys = append(c.Ops.Keys, telemetry.OpsKey{Name: "anna-" + scope, SHA256: hash, Scopes: []string{scope}})
	}
	core, logs := observer.New(zap.InfoLevel)
	e := newEngines(c, zap.New(core))
	defer func() { require.NoError(t, e.stack.Stop(t.Context())) }()
	p, err := buildPart(t.Context(), RoleRobot, e, partOptions{rules: rulesSource{path: c.Rules}})
	require.NoError(t, err)
	ops, err := e.newOps()
	require.NoError(t, err)
	p.register(ops)
	server := httptest.NewServer(ops)
	defer server.Close()
	r, err := e.Redis()
	require.NoError(t, err)
	book, err := history.New(c.Robot.History, r, nil)
	require.NoError(t, err)
	book.Add(t.Context(), "card", "oUser-1", engine.Action{ID: "1", What: "hi"})
	left := func() int {
		all, err := book.Last(t.Context(), "card", "oUser-1")
		require.NoError(t, err)
		return len(all)
	}
	erase := func(key, openid string, yes bool) (string, error) {
		var out bytes.Buffer
		err := Erase(t.Context(), EraseOptions{Ops: server.URL, Key: key, Account: "card", OpenID: openid, Yes: yes, Out: &out})
		return out.String(), err
	}

	out, err := erase("", "oUser-1", false)
	require.NoError(t, err)
	require.Contains(t, out, "nothing was erased: with --yes")
	_, err = erase(keys["personal"], "o ser", true)
	require.ErrorIs(t, err, ErrUsage)
	_, err = erase(keys["read"], "oUser-1", true)
	require.ErrorContains(t, err, "has not the scope personal")
	require.Equal(t, 1, left(), "so far nothing was erased")

	out, err = erase(keys["personal"], "oUser-1", true)
	require.NoError(t, err)
	require.Contains(t, out, "robots: erased: last actions\n")
	require.Contains(t, out, "robots: erased: dialogue\n")
	require.Contains(t, out, "not reached: records of callbacks")
	require.Zero(t, left())
	told := logs.FilterMessage("a follower's data was erased").All()
	require.Len(t, told, 1)
	require.Equal(t, "anna-personal", told[0].ContextMap()["by"])
	require.NotContains(t, fmt.Sprint(told[0].ContextMap()), "oUser-1")

	cache.Close()
	_, err = erase(keys["personal"], "oUser-1", true)
	require.ErrorContains(t, err, "Send the same request again", "what was not erased is not told as erased")
}
