package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat"
	"tidegate/proxy"
)

func TestDoctorTellsWhatTheEdgeLetsIn(t *testing.T) {
	now := time.Unix(1893456000, 0)
	say := func(change func(*AccountConfig)) string {
		a := AccountConfig{Name: "card"}
		change(&a)
		d := &doctor{roles: []Role{RoleProxy}, now: func() time.Time { return now }}
		d.cfg.Accounts = []AccountConfig{a}
		return fmt.Sprint(d.checkEdge())
	}
	require.Equal(t, "[]", say(func(a *AccountConfig) { a.Mode, a.PrevUntil = wechat.ModeSafe, now.Add(1) }))
	require.Contains(t, say(func(a *AccountConfig) { a.Mode, a.AllowFrom = wechat.ModePlain, []string{"any"} }), "mode plain from any address")
	require.Contains(t, say(func(a *AccountConfig) { a.Mode, a.AllowFrom = wechat.ModePlain, []string{"203.0.113.0/24"} }), "only allow_from keeps forgeries out")
	require.Contains(t, say(func(a *AccountConfig) { a.PrevUntil = now }), "the overlap with its previous secrets is over")

	d := &doctor{roles: []Role{RoleProxy}}
	d.cfg.Proxy.Repeats.Rules = []proxy.RepeatRule{{Types: []string{"CLICK", "clikc"}}}
	require.Contains(t, fmt.Sprint(d.checkEdge()), `warn  proxy.repeats.rules[0].types: "clikc" is no event that this program knows; the nearest is CLICK – correct it`)

	ops := func(c OpsConfig) string {
		d := &doctor{}
		d.cfg.Ops = c
		return d.checkOps().String()
	}
	c := DefaultConfig().Ops
	require.Contains(t, ops(c), "only this machine reaches it")
	c.Addr, c.AllowOpen = "0.0.0.0:9100", true
	require.Contains(t, ops(c), "tidegate ops-key")
	c.Keys = []telemetry.OpsKey{{Name: "prometheus"}}
	require.Contains(t, ops(c), "there is 1")
}
