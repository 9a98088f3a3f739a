//go:build crash

package token_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/lease"
	"tidegate/pkg/redis"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/sender/token"
)

// victimLease is the lease of everybody in the test.
const victimLease = 2 * time.Second

type wechatCaller struct{ c *wechat.Client }

func (w wechatCaller) StableToken(ctx context.Context, appID, secret string, force bool) (string, time.Duration, error) {
	got, err := w.c.StableToken(ctx, appID, secret, force)
	return got.Token, got.Life, err
}

// sharing is a keeper over a Redis and a WeChat that other processes use too.
func sharing(t *testing.T, addr, prefix, sim string) *token.Keeper {
	t.Helper()
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Prefix = []string{addr}, prefix
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	calls, err := wechat.NewClient(nil, wechat.Options{BaseURLs: []string{sim}, Timeout: time.Second})
	require.NoError(t, err)
	k, err := token.New(wechatCaller{calls}, token.NewShared(c), token.Options{Judge: token.JudgeWeChat, Lease: victimLease, CallTimeout: 900 * time.Millisecond}, zap.NewNop(), nil)
	require.NoError(t, err)
	k.SetAccounts([]token.Account{shop})
	return k
}

// TestVictim is the process that dies at CP15; TestCP15 starts it.
func TestVictim(t *testing.T) {
	sim := os.Getenv("TIDEGATE_VICTIM_SIM")
	if sim == "" {
		t.Skip("TestCP15 starts it")
	}
	_, err := sharing(t, os.Getenv("TIDEGATE_VICTIM_REDIS"), os.Getenv("TIDEGATE_VICTIM_PREFIX"), sim).Token(t.Context(), "shop")
	t.Fatalf("it lives: %v", err)
}

// CP15: a sender gets a token and is killed before it has told the others. They
// have one when its lease has ended, at the price of one call.
func TestCP15KilledWithATokenThatNobodyKnows(t *testing.T) {
	r := startRedis(t, false)
	addr := os.Getenv("TIDEGATE_TEST_REDIS")
	if addr == "" {
		addr = r.mem.Addr()
	}
	prefix := "cp15-" + time.Now().Format("150405.000000")
	cfg := wechatsim.DefaultConfig()
	cfg.Accounts = []wechatsim.Account{{AppID: shop.AppID, Secret: shop.Secret, GhID: "gh_5d1e0a77c3b2", Token: "t", Mode: wechatsim.ModePlain}}
	sim, err := wechatsim.New(cfg, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	defer sim.Close()

	self, err := os.Executable()
	require.NoError(t, err)
	victim := exec.CommandContext(t.Context(), self, "-test.run", "^TestVictim$")
	victim.Env = append(os.Environ(), "TIDEGATE_CRASH_AT=CP15:1", "TIDEGATE_VICTIM_SIM="+sim.URL(), "TIDEGATE_VICTIM_REDIS="+addr, "TIDEGATE_VICTIM_PREFIX="+prefix)
	var stderr bytes.Buffer
	victim.Stderr = &stderr
	_ = victim.Run()
	died := time.Now()
	require.Equal(t, "signal: killed", victim.ProcessState.String())
	require.Contains(t, stderr.String(), "killed at CP15")
	require.Equal(t, 1, calls(sim), "it had its token")

	rc := redis.DefaultConfig()
	rc.Addrs, rc.Prefix = []string{addr}, prefix
	look, err := redis.Open(rc, zap.NewNop())
	require.NoError(t, err)
	defer look.Close()
	_, held, err := lease.Current(t.Context(), look, "token/shop")
	require.NoError(t, err)
	require.True(t, held, "and died with the lease: the others have to wait for its end")
	_, known, err := token.NewShared(look).Load(t.Context(), "shop")
	require.NoError(t, err)
	require.False(t, known)

	var wg sync.WaitGroup
	for range 4 {
		k := sharing(t, addr, prefix, sim.URL())
		for range 25 {
			wg.Go(func() {
				tok, err := k.Token(t.Context(), "shop")
				if err != nil || tok.Value == "" {
					t.Errorf("token: %v", err)
				}
			})
		}
	}
	wg.Wait()
	took := time.Since(died)
	require.Less(t, took, victimLease+5*time.Second, "a lease, and what a busy machine takes")
	require.Equal(t, 2, calls(sim), "one extra call")
	t.Logf("CI: CP15 killed with a token that nobody knew: 4 senders × 25 had one after %s (lease %s), 1 extra call", took.Round(10*time.Millisecond), victimLease)
}

func calls(sim *wechatsim.Sim) int {
	got, _ := sim.Journal().Read(0, 1<<16, func(e *wechatsim.Entry) bool {
		return e.Kind == wechatsim.KindArrival && e.What == wechatsim.PathStableToken
	})
	return len(got)
}
