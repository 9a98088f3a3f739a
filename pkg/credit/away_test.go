package credit_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/credit"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// Redis away: nothing waits, everything goes, and it is counted.
func TestRedisAway(t *testing.T) {
	s, err := redismem.Start("")
	require.NoError(t, err)
	rc := redis.DefaultConfig()
	rc.Addrs = []string{s.Addr()}
	c, err := redis.Open(rc, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	reg := prometheus.NewRegistry()
	l, err := credit.New(credit.DefaultConfig(), c, nil, reg)
	require.NoError(t, err)
	s.Close()
	for range 9000 {
		l.Note(credit.Act{Account: "shop", OpenID: "u", ID: "x", MsgType: "text", ReceivedAt: time.Now().UnixMilli()})
	}
	require.Equal(t, credit.Unknown, l.Take(t.Context(), credit.Want{Account: "shop", OpenID: "u", Message: "m", N: 1, Cause: time.Now()}).Verdict)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, l.Run(ctx))
	m, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range m {
		if f.GetName() == "tidegate_credit_dropped_total" {
			require.InDelta(t, 9000, f.GetMetric()[0].GetCounter().GetValue(), 0)
		}
	}
}

func TestSettings(t *testing.T) {
	require.NoError(t, credit.DefaultConfig().Validate())
	for want, change := range map[string]func(*credit.Config){
		"credit.message.count":    func(c *credit.Config) { c.Message.Count = -2 },
		"credit.menu.valid":       func(c *credit.Config) { c.Menu.Valid = 0 },
		"credit.events.pay.count": func(c *credit.Config) { c.Events = map[string]credit.Window{"pay": {Count: 1001, Valid: time.Hour}} },
	} {
		c := credit.DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
	off := credit.DefaultConfig()
	off.Off = true
	l, err := credit.New(off, nil, nil, nil)
	require.NoError(t, err)
	require.Nil(t, l)
	l.Note(credit.Act{OpenID: "u"})
}
