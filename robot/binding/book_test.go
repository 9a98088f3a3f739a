package binding_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/guard"
	"tidegate/pkg/redis"
	"tidegate/robot/binding"
)

// Both nodes know what one of them asked, and both know of a change at once.
func TestAskedOnceAndChangedAtOnce(t *testing.T) {
	w := newWorld(t)
	one, two := w.node(), w.node()
	for range 20 {
		require.Empty(t, lookup(t, one))
		require.Empty(t, lookup(t, two), "that nobody is bound is known as well")
	}
	require.Equal(t, 1, w.bank.asked())
	require.NoError(t, one.Bind(t.Context(), account, openid, "cust 77", "idem-1"))
	for range 20 {
		require.Equal(t, "cust 77", lookup(t, two))
		require.Equal(t, "cust 77", lookup(t, one))
	}
	require.Equal(t, 2, w.bank.asked())
	got, err := two.Followers(t.Context(), account, "cust 77")
	require.NoError(t, err)
	require.Equal(t, []string{openid}, got)
	require.NoError(t, two.Unbind(t.Context(), account, openid, ""))
	require.Empty(t, lookup(t, one))
	require.Equal(t, []string{"idem-1", ""}, w.bank.keys)
	require.NoError(t, two.Unbind(t.Context(), account, openid, ""), "untied already")
}

// A lookup that read the bank before an unbind, and whose answer comes after it,
// is not what later callers get.
func TestNoOlderBindingAfterAChange(t *testing.T) {
	w := newWorld(t)
	one, two := w.node(), w.node()
	require.NoError(t, one.Bind(t.Context(), account, openid, "old", ""))
	hold := make(chan struct{})
	w.bank.set(func() { w.bank.hold = hold })
	slow := make(chan string, 1)
	go func() {
		user, _ := one.Lookup(context.Background(), account, openid)
		slow <- user
	}()
	<-w.bank.held // it has read "old"
	w.bank.set(func() { w.bank.hold = nil })
	require.NoError(t, two.Bind(t.Context(), account, openid, "new", ""))
	close(hold)
	<-slow // whatever the caller from before gets
	for range 10 {
		require.Equal(t, "new", lookup(t, one))
		require.Equal(t, "new", lookup(t, two))
	}
}

// A bank that fails is no answer, least of all "not bound", and a write that
// failed voids what was known.
func TestAFailureIsNoAnswer(t *testing.T) {
	w := newWorld(t)
	b := w.node()
	require.NoError(t, b.Bind(t.Context(), account, openid, "cust", ""))
	require.Equal(t, "cust", lookup(t, b))
	w.bank.set(func() { w.bank.fail = http.StatusInternalServerError })
	require.Equal(t, "cust", lookup(t, b), "what is known is known")
	require.Equal(t, fault.Ambiguous, fault.KindOf(b.Unbind(t.Context(), account, openid, "")))
	_, err := b.Lookup(t.Context(), account, openid)
	require.Error(t, err, "it may have been done")
	require.NotContains(t, err.Error(), openid)
	w.bank.set(func() { w.bank.fail = http.StatusForbidden })
	require.Equal(t, fault.Denied, fault.KindOf(b.Bind(t.Context(), account, openid, "x", "")))
	w.bank.set(func() { w.bank.fail = 0 })
	require.Eventually(t, func() bool {
		user, err := b.Lookup(context.Background(), account, openid)
		return err == nil && user == "cust"
	}, 10*time.Second, 20*time.Millisecond, "a failure is remembered for a second")
}

// What lies in Redis cannot be read there; without a key nothing lies there.
func TestBindingsAreSealedOrNotKept(t *testing.T) {
	w := newWorld(t)
	open := w.node(func(c *binding.Config) { c.Key = "" })
	require.NoError(t, open.Bind(t.Context(), account, openid, "cust-4711", ""))
	before := w.bank.asked()
	for range 5 {
		require.Equal(t, "cust-4711", lookup(t, open))
	}
	require.Equal(t, before+5, w.bank.asked())
	sealed := w.node()
	require.Equal(t, "cust-4711", lookup(t, sealed))
	require.Equal(t, "cust-4711", lookup(t, sealed))
	require.Equal(t, before+6, w.bank.asked())
	dump := w.dump()
	require.Contains(t, dump, "guard/binding/")
	require.NotContains(t, dump, "cust-4711")
	require.NotContains(t, dump, openid)
}

// Without Redis the bank is asked, and nobody gets an error.
func TestWithoutRedisTheBankIsAsked(t *testing.T) {
	w := newWorld(t)
	if w.server == nil {
		t.Skip("stops the embedded Redis")
	}
	b := w.node()
	require.NoError(t, b.Bind(t.Context(), account, openid, "cust", ""))
	w.server.Close()
	for range 5 {
		require.Equal(t, "cust", lookup(t, b))
	}
	for range 2 { // the second time the bank knows of no binding any more
		err := b.Unbind(t.Context(), account, openid, "")
		require.Equal(t, fault.Ambiguous, fault.KindOf(err))
		require.ErrorIs(t, err, api.ErrInPart, "done at the bank, and other robots do not know")
	}
	require.Empty(t, lookup(t, b))
	require.ErrorIs(t, b.Forget(t.Context(), account, openid), guard.ErrOwed)
}

// Without a key no robot keeps anything, so nobody has to be told.
func TestWithoutAKeyNobodyIsOwedAnything(t *testing.T) {
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout = []string{"127.0.0.1:1"}, 100*time.Millisecond
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	w := newWorld(t)
	b := w.nodeAt(c, func(c *binding.Config) { c.Key = "" })
	require.NoError(t, b.Bind(t.Context(), account, openid, "cust", ""))
	require.NoError(t, b.Unbind(t.Context(), account, openid, ""))
}

func TestWhatComesFromOutsideIsChecked(t *testing.T) {
	w := newWorld(t)
	b := w.node()
	for _, user := range []string{"", "..", "a/b", "a\nb", strings.Repeat("x", 129), "\xff"} {
		require.Equal(t, fault.Invalid, fault.KindOf(b.Bind(t.Context(), account, openid, user, "")), "%q", user)
		_, err := b.Followers(t.Context(), account, user)
		require.Equal(t, fault.Invalid, fault.KindOf(err), "%q", user)
	}
	_, err := b.Lookup(t.Context(), account, "no openid")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	_, err = b.Lookup(t.Context(), "No", openid)
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	w.bank.set(func() { w.bank.users[account+"/"+openid] = "a/b" })
	_, err = b.Lookup(t.Context(), account, openid)
	require.Equal(t, fault.Final, fault.KindOf(err), "also what the bank says")
	require.Empty(t, w.bank.keys)
}

func TestConfigIsChecked(t *testing.T) {
	require.NoError(t, binding.DefaultConfig().Validate())
	for want, change := range map[string]func(*binding.Config){
		"path: ":                  func(c *binding.Config) { c.Path = "bindings/{account}/{openid}" },
		"{openid} is missing":     func(c *binding.Config) { c.Path = "/x/{account}" },
		"use each of {account}":   func(c *binding.Config) { c.Path = "/x/{openid}/{user}" },
		"user_path: \"/x/../{":    func(c *binding.Config) { c.UserPath = "/x/../{user}" },
		"32 random bytes":         func(c *binding.Config) { c.Key = "short" },
		"ttl: 25h0m0s is outside": func(c *binding.Config) { c.TTL = 25 * time.Hour },
		"nodes: 9 is outside":     func(c *binding.Config) { c.Nodes, c.Gate = 9, 8 },
	} {
		c := binding.DefaultConfig()
		c.Backend = "bank"
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
}
