package robot_test

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/robot/backend"
)

// A shared answer is fetched once for callbacks of many followers, and the
// receipt says so; rules that want what the back end does not have are refused.
func TestCallsThroughTheGuard(t *testing.T) {
	w := newWorld(t, "a")
	var calls atomic.Int64
	w.backend(func(rw http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		_, _ = io.WriteString(rw, `{"waiting": 12}`)
	}, func(c *backend.Config) { c.Guard = backend.GuardConfig{Enabled: true, Threshold: -1} })
	w.engine = rulesOf(t, "  - name: queue\n    match: {default: true}\n    call: {backend: core, method: GET, path: /queue, guard: shared}\n    reply: {text: '{{ .Answer.waiting }} wait'}\n")
	r := w.start(account("a"))
	first, second := callback("a", "o1", 1, "x"), callback("a", "o2", 1, "x")
	w.send(first)
	w.awaitReceipts(1)
	w.send(second)
	w.awaitReceipts(2)
	require.Equal(t, []string{"12 wait"}, w.texts("o1"))
	require.Equal(t, []string{"12 wait"}, w.texts("o2"))
	require.EqualValues(t, 1, calls.Load())
	require.Contains(t, w.receipt(second.ID).Detail, "answer shared (")
	require.NotNil(t, r.Guards())
	require.ErrorContains(t, r.SetRules(rulesOf(t, "  - name: card\n    match: {default: true}\n    call: {backend: core, method: GET, path: /c, guard: {class: personal, cache: true}}\n    reply: {text: x}\n")), "no guard.key")
	bare := newWorld(t, "a")
	require.ErrorContains(t, bare.start(account("a")).SetRules(w.engine), "has none")
}

// An erasure reaches what rules keep of back ends' answers about the follower, and
// nobody else's.
func TestErasureReachesPersonalAnswers(t *testing.T) {
	w := newTalking(t, true)
	var calls atomic.Int64
	w.backend(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(rw, `{"n": %d}`, calls.Add(1))
	}, func(c *backend.Config) {
		c.Guard = backend.GuardConfig{Enabled: true, Threshold: -1, Key: sealKey}
	})
	w.use("version: 1\nfallback: busy\nrules:\n  - name: debt\n    match: {text: {any: true}}\n    call: {backend: core, method: GET, path: \"/debts/{{ .OpenID }}\", guard: {class: personal, cache: true}}\n    reply: {text: \"{{ .Answer.n }}\"}\n")
	r := w.run()
	n := 0
	debt := func(who string) string {
		n++
		w.send(callback("card", who, n, "debt"))
		w.awaitReceipts(n)
		all := w.texts(who)
		return all[len(all)-1]
	}
	require.Equal(t, []string{"1", "1", "2", "2"}, []string{debt("o1"), debt("o1"), debt("o2"), debt("o2")})
	e, err := r.Erase(t.Context(), "card", "o1")
	require.NoError(t, err)
	require.Contains(t, e.Erased, "back ends' personal answers")
	require.Equal(t, []string{"3", "2"}, []string{debt("o1"), debt("o2")})
}
