package app

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/control"
)

// ask sends a request as any program would.
func (d *desk) ask(method, path, key, body string, head ...string) (int, http.Header, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	require.NoError(d.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i+1 < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(d.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(d.t, err)
	return resp.StatusCode, resp.Header, string(text)
}

// Who may do what: reading cannot write, writing elsewhere cannot steer.
func TestS37WhoMayChangeLimits(t *testing.T) {
	d := newDesk(t, "a", shared(t))
	d.open()
	const one, body = "/ops/v1/limits/robot.account.card", `{"rate":1,"burst":1,"concurrency":1,"reason":"x"}`
	for _, c := range []struct {
		method, path string
		allowed      string
	}{
		{"GET", "/ops/v1/limits", "read"}, {"GET", one, "read"}, {"GET", "/ops/v1/audit", "read"},
		{"PUT", one, "steer"}, {"DELETE", one + "?reason=x", "steer"},
	} {
		send := ""
		if c.method == "PUT" {
			send = body
		}
		for name, want := range map[string]int{"": 401, "read": 403, "steer": 403, "write": 403} {
			if name == c.allowed {
				want = 200
			}
			status, _, text := d.ask(c.method, c.path, d.keys[name], send)
			require.Equal(t, want, status, "%s %s with %q: %s", c.method, c.path, name, text)
		}
	}
	require.Eventually(t, func() bool { return d.now() == deskFile }, 20*time.Second, 5*time.Millisecond, "set once, taken back once, by the key that may")
	log, err := d.panel.Log(t.Context(), control.LogQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, log, 2)
	for _, e := range log {
		require.Equal(t, "anna-steer", e.By)
	}
	_, err = d.cli(func(o LimitsOptions) error {
		o.Key = ""
		return LimitsSet(t.Context(), o, LimitsChange{Subject: "robot.account.card", Rate: ptr(1.0), Reason: "x"})
	})
	require.ErrorContains(t, err, "a key with the scope read")
	_, err = d.cli(func(o LimitsOptions) error {
		o.Key = d.keys["read"]
		return LimitsSet(t.Context(), o, LimitsChange{Subject: "robot.account.card", Rate: ptr(1.0), Reason: "x"})
	})
	require.ErrorContains(t, err, "has not the scope steer")
}

// Input is strict, and two who change the same limit are told of one another.
func TestLimitsRefuseWhatIsWrong(t *testing.T) {
	d := newDesk(t, "a", shared(t))
	d.open()
	const path = "/ops/v1/limits/robot.account.card"
	key := d.keys["both"]
	good := `{"rate":1,"burst":1,"concurrency":1,"reason":"x"}`
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
		head               []string
	}{
		{"PUT", path, `{"rate":1,"burst":1,"reason":"x"}`, 400, "field concurrency is missing", nil},
		{"PUT", path, `{"rate":1,"burst":1,"concurrency":null,"reason":"x"}`, 400, "field concurrency is missing", nil},
		{"PUT", path, `{"rate":1,"burst":1,"concurrency":1}`, 400, "say why", nil},
		{"PUT", path, `{"rate":-1,"burst":1,"concurrency":1,"reason":"x"}`, 400, "rate: -1", nil},
		{"PUT", path, `{"rate":"1","burst":1,"concurrency":1,"reason":"x"}`, 400, "a JSON string does not fit", nil},
		{"PUT", path, `{"rate":1,"burst":1.5,"concurrency":1,"reason":"x"}`, 400, "a whole number", nil},
		{"PUT", path, `{"rate":1,"rate":2,"burst":1,"concurrency":1,"reason":"x"}`, 400, "comes twice", nil},
		{"PUT", path, `{"rate":1,"burst":1,"concurrency":1,"reason":"x","for":"1h"}`, 400, "unknown field for", nil},
		{"PUT", path, `{"rate":1,"burst":1,"concurrency":1,"reason":"x","expires_in":"1"}`, 400, "expires_in", nil},
		{"PUT", path, `{"rate":1,"burst":1,"concurrency":1,"reason":"a\nb"}`, 400, "one line", nil},
		{"PUT", path, strings.Repeat(" ", maxLimitBody) + good, 413, "too large", nil},
		{"PUT", path, good, 415, "not plain JSON", []string{"Content-Type", "text/plain"}},
		{"PUT", path, good, 400, "If-Match", []string{"If-Match", "*"}},
		{"PUT", path, good, 400, "If-Match", []string{"If-Match", `W/"1"`}},
		{"PUT", path, good, 412, "has version 0 and not 7", []string{"If-Match", `"7"`}},
		{"PUT", path + "?x=1", good, 400, "unknown parameter", nil},
		{"PUT", "/ops/v1/limits/robot.account.crad", good, 404, "there are: robot.account.card", nil},
		{"PUT", "/ops/v1/limits/robot%2Faccount", good, 404, "no live node", nil},
		{"DELETE", path, "", 400, "say why", nil},
		{"DELETE", path + "?reason=x", "", 404, "nothing to take back", nil},
		{"POST", path, good, 405, "", nil},
		{"PUT", "/ops/v1/limits", good, 405, "", nil},
		{"GET", "/ops/v1/limits/x", "", 404, "there is no limit", nil},
		{"GET", "/ops/v1/limits?account=card", "", 400, "unknown parameter", nil},
		{"GET", "/ops/v1/audit?limit=0", "", 400, "limit is", nil},
		{"GET", "/ops/v1/audit?before=x", "", 400, "before is", nil},
		{"GET", "/ops/v1/audit?verify=yes", "", 400, "true or false", nil},
	} {
		status, _, text := d.ask(c.method, c.path, key, c.body, c.head...)
		require.Equal(t, c.status, status, "%s %s %s: %s", c.method, c.path, c.body, text)
		require.Contains(t, text, c.says)
	}
	status, head, text := d.ask("GET", path, key, "")
	require.Equal(t, 200, status, text)
	require.Equal(t, `"0"`, head.Get("ETag"))
	status, head, text = d.ask("PUT", path, key, good, "If-Match", `"0"`)
	require.Equal(t, 200, status, text)
	require.Equal(t, `"1"`, head.Get("ETag"))
	status, _, _ = d.ask("PUT", path, key, good, "If-Match", `"0"`)
	require.Equal(t, 412, status, "who comes second is told")
	log, err := d.panel.Log(t.Context(), control.LogQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, log, 1, "what is refused leaves nothing behind")

	for want, l := range map[string]LimitsChange{
		"--reason: say why":                 {Subject: "robot.account.card", Rate: ptr(1.0)},
		"at least one of --rate":            {Subject: "robot.account.card", Reason: "x"},
		"--for":                             {Subject: "robot.account.card", Rate: ptr(1.0), Reason: "x", For: time.Millisecond},
		"--wait":                            {Subject: "robot.account.card", Rate: ptr(1.0), Reason: "x", Wait: -1},
		"there are robot.account.card":      {Subject: "robot.account.crad", Rate: ptr(1.0), Reason: "x"},
		"rate: -1":                          {Subject: "robot.account.card", Rate: ptr(-1.0), Reason: "x"},
		"robot.nothing is not set":          {Subject: "robot.nothing", Reset: true, Reason: "x"},
		"not at work everywhere after 50ms": {Subject: "robot.account.card", Rate: ptr(5.0), Reason: "x", Wait: 50 * time.Millisecond},
	} {
		if l.Wait > 0 { // a node that lives and does not follow
			frozen := newDesk(t, "frozen", func(c *Config) {
				c.Redis.Addrs, c.Database.Driver, c.Database.DSN = d.cfg.Redis.Addrs, "postgres", "postgres://u@127.0.0.1:1/x?sslmode=disable"
			})
			require.Eventually(t, func() bool { return len(d.panel.Overview(t.Context()).Nodes) == 2 }, 20*time.Second, 5*time.Millisecond)
			defer frozen.stop()
		}
		_, err := d.set(l)
		require.ErrorContains(t, err, want)
	}
}
