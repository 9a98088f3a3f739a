package proxy_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
)

func (w *world) alarms() []string {
	out := []string{}
	for _, a := range w.board.Firing() {
		out = append(out, a.Name+"/"+a.Subject)
	}
	slices.Sort(out)
	return out
}

func (w *world) requireAlarms(want ...string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return slices.Equal(w.alarms(), want) }, patience, 20*time.Millisecond, "want %v", want)
}

// Without a spool an outage of Kafka is refusals, and they are told at once.
func TestRefusedCallbacksRaiseAnAlarm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wechat.ModeSafe, nil)
	requireAck(t, w.post(text(1, "before")))
	require.Empty(t, w.alarms())
	w.q.set(errAway)
	require.Equal(t, http.StatusServiceUnavailable, w.post(text(2, "refused")).Code)
	w.requireAlarms("callbacks_refused/card")
	// An account that is taken away takes its alarms along.
	other := account(wechat.ModeSafe)
	other.Name = "bank"
	require.NoError(t, w.p.SetAccounts(one(other)))
	w.requireAlarms()
}

// One fault after the other, each with its alarm, which ends with it.
func TestFaultsAtTheDoorRaiseTheirAlarms(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool[1]") // a name that is also a pattern, which does not match itself
	w := newWorld(t, wechat.ModeSafe, nil, withSpool(dir))
	w.q.set(errAway)
	w.redis.Fail("MISCONF the disk is full")
	for i := range 5 {
		requireAck(t, w.post(text(i, fmt.Sprint(i))))
	}
	aside := filepath.Join(dir, "00000000000000000001-0.bad")
	require.NoError(t, os.WriteFile(aside, []byte("x"), 0o600))
	w.requireAlarms("kafka_away/", "redis_unchecked/", "spool_damaged/")

	w.q.set(nil)
	w.redis.Fail("")
	require.NoError(t, os.Remove(aside))
	w.waitFor(5)
	require.Eventually(t, func() bool { // the breaker of dedupe lets one ask each second
		requireAck(t, w.post(text(int(w.n.Load())+100, "after")))
		return len(w.alarms()) == 0
	}, patience, 100*time.Millisecond)
}
