package app

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/config"
	"tidegate/pkg/wechat/wechatsim"
	"tidegate/proxy"
	"tidegate/receipts"
)

// B3.5 and M9 on the whole road: a follower of the simulated WeChat presses the
// same button again and again. One press is worked, the others are recorded,
// operations see who it was, and one alarm is raised.
func TestAnImpatientFollowerIsSeen(t *testing.T) {
	o := DevOptions{}
	w, err := startDev(t.Context(), o, t.TempDir(), zap.NewNop())
	defer func() { require.NoError(t, w.stop()) }()
	require.NoError(t, err)
	users, err := w.sim.Followers("", 1)
	require.NoError(t, err)
	const presses = 22
	began := time.Now()
	for range presses {
		d, err := w.sim.Act(t.Context(), "", wechatsim.Menu(users[0], "BILL:1"))
		require.NoError(t, err)
		require.True(t, d.Acked)
		require.NoError(t, w.sim.Advance(time.Second)) // the next second by WeChat's clock: another press
	}
	require.Less(t, time.Since(began), 10*time.Second, "the presses came too late to show anything")
	show := func(o RepeatsOptions) string {
		var out bytes.Buffer
		o.Ops, o.Out = "http://"+w.ops.Addr(), &out
		require.NoError(t, Repeats(t.Context(), o))
		return out.String()
	}
	var v receipts.RepeatsView
	require.Eventually(t, func() bool {
		require.NoError(t, json.Unmarshal([]byte(show(RepeatsOptions{Since: time.Minute, Limit: 5, JSON: true})), &v))
		return v.Repeats >= presses-1
	}, 30*time.Second, 20*time.Millisecond)
	user := w.engines.hasher.OpenID(users[0])
	require.EqualValues(t, presses-1, v.Repeats, "one was worked")
	require.EqualValues(t, 1, v.Users)
	require.Equal(t, user, v.TopUsers[0].User)
	require.Equal(t, "CLICK:BILL:1", v.TopActions[0].Action)
	require.Len(t, v.Recent, 5)
	text := show(RepeatsOptions{Since: time.Minute, Limit: 3, Account: devAccount})
	require.Contains(t, text, "21 repeats by 1 users")
	require.Contains(t, text, "same action within 10s, by proxy.repeats.rules[0]")
	require.NotContains(t, text, users[0])

	require.Eventually(t, func() bool { return len(w.engines.Alarms().Firing()) == 1 }, 30*time.Second, 20*time.Millisecond)
	a := w.engines.Alarms().Firing()[0]
	require.Equal(t, "user_repeats", a.Name)
	require.Equal(t, devAccount+" user "+user, a.Subject)
}

func TestRepeatsSaysWhatIsWrong(t *testing.T) {
	answer := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	keyed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Bearer tgo_key", r.Header.Get("Authorization"))
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(keyed.Close)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte("tgo_key\n"), 0o600))
	for _, key := range []string{"tgo_key", "file:" + file} {
		require.NoError(t, Repeats(t.Context(), RepeatsOptions{Ops: keyed.URL, Key: key, Since: time.Minute, Limit: 1, Out: &bytes.Buffer{}}))
	}
	// A port that was free a moment ago may be somebody's by now; this one never is.
	const nobody = "http://127.0.0.1:1"
	for want, ops := range map[string]string{
		"--ops: write the address of an operations listener": "ftp://x",
		"is the role running":                                nobody,
		"(ops.addr) of a receipts role":                      answer(http.StatusNotFound, "404 page not found"),
		"'tidegate ops-key NAME --scope read' makes one":     answer(http.StatusUnauthorized, `{"errcode":"unauthenticated","detail":"no valid key","do":"Send one."}`),
		"status 500":                     answer(http.StatusInternalServerError, "\x1b[31mboom"),
		"the account x is not here":      answer(http.StatusBadRequest, `{"errcode":"invalid","detail":"the account x is not here","do":"Change it."}`),
		"Send the same request again":    answer(http.StatusServiceUnavailable, `{"errcode":"unavailable","detail":"Service Unavailable","do":"Send the same request again."}`),
		"the answer is not what":         answer(http.StatusOK, "<html>"),
		"more than 8388608 bytes: ask f": answer(http.StatusOK, string(make([]byte, maxOpsAnswer+1))),
	} {
		err := Repeats(context.Background(), RepeatsOptions{Ops: ops, Since: time.Minute, Limit: 1, Out: &bytes.Buffer{}})
		require.ErrorContains(t, err, want)
	}
	for want, key := range map[string]string{"no such file": "file:/does/not/exist", "this is no key": "a b"} {
		err := Repeats(context.Background(), RepeatsOptions{Ops: "127.0.0.1:1", Key: key, Since: time.Minute, Limit: 1, Out: &bytes.Buffer{}})
		require.ErrorIs(t, err, ErrUsage)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "a b")
	}
	require.Equal(t, "a?[31m b", forTerminal("a\x1b[31m b"))
}

func TestTheRulesOfRepeatsAreReadFromAFile(t *testing.T) {
	load := func(text string) (Config, error) {
		path := filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return LoadConfig(path, nil)
	}
	c, err := load("proxy:\n  repeats:\n    window: 5s\n    rules:\n      - {types: [CLICK], key: 'loan_*', window: 30s}\n      - {key: balance, window: 0}\n      - types: [text]\n")
	require.NoError(t, err)
	long, never := 30*time.Second, time.Duration(0)
	require.Equal(t, proxy.RepeatsConfig{Window: 5 * time.Second, Rules: []proxy.RepeatRule{
		{Types: []string{"CLICK"}, Key: "loan_*", Window: &long}, {Key: "balance", Window: &never}, {Types: []string{"text"}},
	}}, c.Proxy.Repeats, "the default rule leaves nothing behind")
	printed, err := config.Redacted(&c.Proxy.Repeats)
	require.NoError(t, err)
	again, err := load("proxy:\n  repeats:\n    " + strings.ReplaceAll(printed, "\n", "\n    "))
	require.NoError(t, err)
	reprinted, err := config.Redacted(&again.Proxy.Repeats)
	require.NoError(t, err)
	require.Equal(t, printed, reprinted, "what --print-config writes can be read")

	c, err = load("proxy: {repeats: {rules: []}}\n")
	require.NoError(t, err)
	require.Empty(t, c.Proxy.Repeats.Rules, "nothing is a repeat")
	_, err = load("proxy: {repeat_window: 5s, repeat_events: [CLICK]}\n")
	require.ErrorContains(t, err, "unknown key proxy.repeat_window; it is proxy.repeats.window now")
	require.ErrorContains(t, err, "unknown key proxy.repeat_events; it is proxy.repeats.rules[].types now")
	_, err = load("proxy: {repeats: {rules: [{type: CLICK}]}}\n")
	require.ErrorContains(t, err, "unknown key proxy.repeats.rules[0].type; did you mean proxy.repeats.rules[].types?")
	_, err = load("proxy: {repeats: {rules: [{window: 5}]}}\n")
	require.ErrorContains(t, err, "write a duration such as 5s")
}
