package app

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/control"
	"tidegate/pkg/telemetry"
	"tidegate/sender/line"
)

// lineDesk is a sender's lines and their part of its operations listener.
func lineDesk(t *testing.T, node string, site func(*Config)) (*line.Fleet, func(func(LimitsOptions) error) (string, error)) {
	t.Helper()
	c := DefaultConfig()
	key, hash := telemetry.NewOpsKey()
	c.Ops.Keys = []telemetry.OpsKey{{Name: "anna", SHA256: hash, Scopes: []string{"read", "steer"}}}
	c.WeChat.Lines = []line.Config{
		{Name: "main", BaseURL: "http://127.0.0.1:9"}, {Name: "spare", BaseURL: "http://127.0.0.1:9", Proxy: "http://gate:CANARY@127.0.0.1:9"}}
	c.Accounts = []AccountConfig{{Name: "card"}, {Name: "bank", Lines: []string{"main"}}}
	site(&c)
	e := newEngines(c, zap.NewNop())
	e.node = node
	live, err := e.Steering(t.Context())
	require.NoError(t, err)
	f, err := e.Lines(live)
	require.NoError(t, err)
	p := linesInto(live.into(&part{role: RoleSender}), live, f, node, zap.NewNop())
	ops, err := e.newOps()
	require.NoError(t, err)
	p.register(ops)
	server := httptest.NewServer(ops)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- live.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		server.Close()
		require.NoError(t, e.stack.Stop(context.Background()))
	})
	require.Eventually(t, func() bool { return live.View().Age() != control.Never }, 20*time.Second, 5*time.Millisecond)
	return f, func(run func(LimitsOptions) error) (string, error) {
		var out bytes.Buffer
		err := run(LimitsOptions{Ops: server.URL, Key: key, Out: &out})
		return out.String(), err
	}
}

// One command moves accounts to another line on every node, and another one back.
func TestLinesByHand(t *testing.T) {
	site := shared(t)
	here, cli := lineDesk(t, "sender-1", site)
	there, _ := lineDesk(t, "sender-2", site)
	uses := func(f *line.Fleet) map[string]string {
		out := map[string]string{}
		for _, a := range f.Accounts() {
			out[a.Account] = a.Use
		}
		return out
	}
	use := func(u LineUse) (string, error) {
		u.Wait = 20 * time.Second
		return cli(func(o LimitsOptions) error { return LinesUse(t.Context(), o, u) })
	}
	require.Equal(t, map[string]string{"card": "main", "bank": "main"}, uses(here))

	text, err := use(LineUse{Line: "spare", Reason: "carrier maintenance"})
	require.NoError(t, err)
	require.Contains(t, text, "every account without a choice of its own goes by line spare")
	for _, f := range []*line.Fleet{here, there} {
		require.Equal(t, map[string]string{"card": "spare", "bank": "spare"}, uses(f), "the command waits for all nodes")
	}
	_, err = use(LineUse{Line: "main", Account: "bank", Reason: "bank has a line of its own", For: time.Hour})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"card": "spare", "bank": "main"}, uses(there))

	text, err = cli(func(o LimitsOptions) error { return LinesList(t.Context(), o) })
	require.NoError(t, err)
	require.Contains(t, text, "carrier maintenance")
	require.Contains(t, text, "127.0.0.1:9")
	require.NotContains(t, text, "CANARY", "S52: what opens the proxy is shown nowhere")
	text, err = cli(func(o LimitsOptions) error {
		o.JSON = true
		return LinesList(t.Context(), o)
	})
	require.NoError(t, err)
	require.NotContains(t, text, "CANARY")
	require.True(t, json.Valid([]byte(text)))

	_, err = use(LineUse{Line: "auto", Reason: "done"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"card": "main", "bank": "main"}, uses(there))

	for says, u := range map[string]LineUse{
		"--reason":               {Line: "spare"},
		`there is no line`:       {Line: "pigeon", Reason: "x"},
		`there is no account`:    {Line: "spare", Account: "nobody", Reason: "x"},
		"there is nothing to ta": {Line: "auto", Reason: "twice"},
	} {
		_, err := use(u)
		require.ErrorContains(t, err, says)
	}
}
