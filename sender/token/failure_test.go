package token_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
	"tidegate/pkg/wechat"
	"tidegate/sender/token"
)

func TestWithoutRedisEachNodeWorksAlone(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	r := startRedis(t, true)
	nodes := []node{newNode(t, p, r, func(o *token.Options) { o.ForcedAlone = 1 }), newNode(t, p, r)}
	r.mem.Fail("MISCONF the disk is full")
	var wg sync.WaitGroup
	for _, n := range nodes {
		for range 100 {
			wg.Go(func() {
				if err := send(t.Context(), p, n); err != nil {
					t.Errorf("send: %v", err)
				}
			})
		}
	}
	wg.Wait()
	normal, _ := p.calls()
	require.Equal(t, 2, normal, "one per node")
	require.EqualValues(t, 1, testutil.ToFloat64(counter(t, nodes[0].reg, "tidegate_token_alone_total")), "the fault must have been met")
	c.Add(time.Minute)
	p.breakCurrent()
	require.NoError(t, send(t.Context(), p, nodes[0]))
	c.Add(time.Minute)
	p.breakCurrent()
	require.Equal(t, fault.Limited, fault.KindOf(send(t.Context(), p, nodes[0])), "alone, forcing is cut")
	r.mem.Fail("")
	c.Add(10 * time.Minute)
	require.NoError(t, send(t.Context(), p, nodes[0]))
}

func TestRefusedAccountStopsWithAnAlarmAndIsAskedSlowly(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	var told []string
	n := newNode(t, p, startRedis(t, false), func(o *token.Options) {
		o.Told = func(account string, failures int, stop bool, why string) {
			told = append(told, fmt.Sprint(account, " ", failures, " ", stop, " ", why))
		}
	})
	p.fail(&wechat.APIError{API: wechat.APIStableToken, Code: 40125})
	for range 200 {
		_, err := n.Token(t.Context(), "shop")
		require.Equal(t, fault.Stopped, fault.KindOf(err), "%v", err)
		require.Positive(t, fault.RetryAfter(err))
	}
	normal, _ := p.calls()
	require.Equal(t, 1, normal)
	require.Equal(t, 1, n.log.FilterMessageSnippet("check the app secret").FilterField(zap.Int("errcode", 40125)).Len())
	require.Contains(t, n.Stopped()["shop"], "40125")
	require.Equal(t, 1.0, gauge(t, n.reg, "tidegate_token_stopped"))
	require.Equal(t, []string{"shop 1 true errcode 40125: check the app secret: it may have been reset"}, told)

	for range 60 { // an hour, asked each minute
		c.Add(time.Minute)
		_, _ = n.Token(t.Context(), "shop")
	}
	normal, _ = p.calls()
	require.LessOrEqual(t, normal, 12)
	require.Equal(t, 1, n.log.FilterMessageSnippet("account stopped").Len(), "one line per problem")

	p.fail(nil)
	c.Add(10 * time.Minute)
	require.NoError(t, send(t.Context(), p, n))
	require.Empty(t, n.Stopped())
	require.Equal(t, 0.0, gauge(t, n.reg, "tidegate_token_stopped"))
	require.Equal(t, "shop 0 false ", told[len(told)-1])
}

func TestNewCredentialsAreTriedAtOnce(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	n := newNode(t, p, nil)
	p.fail(&wechat.APIError{API: wechat.APIStableToken, Code: 40001})
	require.Equal(t, fault.Stopped, fault.KindOf(send(t.Context(), p, n)), "40001 of the token call means: wrong secret")
	p.fail(nil)
	mended := shop
	mended.Secret = "ffffffffffffffffffffffffffffffff"
	n.SetAccounts([]token.Account{mended})
	require.NoError(t, send(t.Context(), p, n))
	n.SetAccounts(nil)
	require.Equal(t, fault.NotFound, fault.KindOf(send(t.Context(), p, n)))
}

func TestBusyPlatformIsAskedWithGrowingPauses(t *testing.T) {
	c := newClock()
	p := &platform{clock: c}
	n := newNode(t, p, nil)
	p.fail(&wechat.APIError{API: wechat.APIStableToken, Code: -1})
	start := c.Now()
	for c.Now().Sub(start) < 5*time.Minute {
		err := send(t.Context(), p, n)
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
		c.Add(time.Second)
	}
	normal, _ := p.calls()
	require.InDelta(t, 14, normal, 2, "1, 2, 4, 8, 16, 30, 30 … s")
}

func TestOneCallersEndIsNotEverybodysFailure(t *testing.T) {
	c := newClock()
	p := &platform{clock: c, entered: make(chan struct{}), hold: make(chan struct{})}
	n := newNode(t, p, nil)
	ctx, cancel := context.WithCancel(t.Context())
	leader := make(chan error, 1)
	go func() { _, err := n.Token(ctx, "shop"); leader <- err }()
	<-p.entered // it is at WeChat
	p.mu.Lock()
	p.entered = nil
	p.mu.Unlock()
	follower := make(chan error, 1)
	go func() { _, err := n.Token(t.Context(), "shop"); follower <- err }()
	cancel()
	require.Equal(t, fault.Unavailable, fault.KindOf(<-leader))
	require.NoError(t, <-follower, "it asks for itself")
}

func TestTokensDoNotPrint(t *testing.T) {
	tok := token.Token{Value: "very-secret-value", ExpiresAt: time.Unix(0, 0)}
	for _, f := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(f, tok), "very-secret-value")
	}
}

// A renewal that is under way when its account is taken away or gets other
// credentials ends in silence: nobody would take back what it says.
func TestARenewalOfAnAccountThatIsGoneTellsNobody(t *testing.T) {
	other := shop
	other.Secret = "changed"
	for name, next := range map[string][]token.Account{"removed": nil, "replaced": {other}} {
		c := newClock()
		p := &platform{clock: c, entered: make(chan struct{}), hold: make(chan struct{}), err: &wechat.APIError{API: wechat.APIStableToken, Code: 40125}}
		told := 0
		n := newNode(t, p, nil, func(o *token.Options) { o.Told = func(string, int, bool, string) { told++ } })
		ended := make(chan error)
		go func() { _, err := n.Token(t.Context(), "shop"); ended <- err }()
		<-p.entered
		n.SetAccounts(next)
		close(p.hold)
		require.Equal(t, fault.Stopped, fault.KindOf(<-ended), name)
		require.Zero(t, told, name)
		require.Zero(t, testutil.CollectAndCount(n.reg, "tidegate_token_stopped"), name)
	}
}
