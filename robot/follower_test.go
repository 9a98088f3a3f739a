package robot_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/api"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/dialogue"
	"tidegate/robot/engine"
	"tidegate/robot/history"
)

const (
	sealKey       = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
	followerRules = `version: 1
fallback: busy
rules:
  - name: bill
    match: {text: {equals: bill}}
    require: bound
    unbound: {text: "bind first"}
    fallback: bill away
    call: {backend: core, path: "/bills/{{ .User }}", method: GET}
    reply: {text: "{{ .Answer.text }}"}
  - name: last
    match: {text: {equals: last}}
    reply: {text: "{{ range .Last }}{{ .What }}={{ .Said }};{{ else }}none{{ end }}"}
  - {name: dear, match: {text: {equals: dear}}, limit: 1 per 1h, reply: {text: dear}}
  - {name: card, match: {text: {equals: card}}, dialogue: {steps: [{ask: {text: digits}, store: digits}]}, reply: {text: "{{ .Vars.digits }}"}}
  - {name: echo, match: {text: {any: true}}, reply: {text: "echo {{ .Content }}"}}
`
)

// bound is a bank that binds followers and sends bills.
type bound struct {
	*talking
	mu    sync.Mutex
	users map[string]string
	gets  atomic.Int64
	sick  atomic.Bool
}

func newBound(t *testing.T) *bound {
	b := &bound{talking: newTalking(t, true), users: map[string]string{}}
	m := http.NewServeMux()
	m.HandleFunc("/v1/bindings/card/{openid}", func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case b.sick.Load():
			w.WriteHeader(http.StatusInternalServerError)
			return
		case r.Method == http.MethodGet:
			b.gets.Add(1)
		case r.Method == http.MethodPut:
			var body struct{ User string }
			_ = json.NewDecoder(r.Body).Decode(&body)
			b.users[r.PathValue("openid")] = body.User
		default:
			delete(b.users, r.PathValue("openid"))
		}
		if user, ok := b.users[r.PathValue("openid")]; ok {
			_, _ = fmt.Fprintf(w, `{"user":%q}`, user)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	m.HandleFunc("GET /bills/{user}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"text":"bill of %s"}`, r.PathValue("user"))
	})
	b.backend(m.ServeHTTP)
	b.cfg.Binding.Backend, b.cfg.Binding.Key = "core", sealKey
	b.cfg.History.Keep, b.cfg.History.Key = 3, sealKey
	b.use(followerRules)
	return b
}

// door is the public API of a robot, with a key that may do everything of it.
func (b *bound) door(r *robot.Robot) func(method, path, body string) (int, string) {
	t := b.t
	t.Helper()
	db := sqldbtest.OpenSQLite(t)
	require.NoError(t, api.Migrate(t.Context(), db))
	keys := api.NewBook(db, nil)
	_, key, err := keys.Add(t.Context(), "crm", []string{api.BindingsRead, api.BindingsWrite, api.DataErase}, []string{"card"})
	require.NoError(t, err)
	s := httptest.NewServer(r.Public(api.NewKeys(keys)))
	t.Cleanup(s.Close)
	return func(method, path, body string) (int, string) {
		req := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		if body != "" {
			req = httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
		}
		req.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		s.Config.Handler.ServeHTTP(w, req)
		return w.Code, w.Body.String()
	}
}

func TestRulesKnowWhoAFollowerIs(t *testing.T) {
	b := newBound(t)
	r := b.run()
	door := b.door(r.Robot)
	turn := func(n int, text string) string {
		sent := b.say(text)
		b.awaitReceipts(n)
		all := b.texts("oUser-1")
		if b.receipt(sent[0].ID).State == wire.Dead {
			return "dead"
		}
		return all[len(all)-1]
	}
	require.Equal(t, "bind first", turn(1, "bill"))
	require.Equal(t, "bind first", turn(2, "bill"))
	require.EqualValues(t, 1, b.gets.Load(), "also that nobody is bound is known for a while")
	status, text := door("PUT", "/v1/accounts/card/bindings/oUser-1", `{"user":"77"}`)
	require.Equal(t, 200, status, text)
	require.Equal(t, "bill of 77", turn(3, "bill"), "a change is known at once")
	require.Equal(t, "bill of 77", turn(4, "bill"))
	require.EqualValues(t, 2, b.gets.Load())
	status, _ = door("DELETE", "/v1/accounts/card/bindings/oUser-1", "")
	require.Equal(t, 204, status)
	b.sick.Store(true)
	require.Equal(t, "bill away", turn(5, "bill"), "a bank that fails is no answer, and not: not bound")
	require.Equal(t, "echo hi", turn(6, "hi"), "who need not know is not asked")
}

func TestWhatAFollowerDidAndItsErasure(t *testing.T) {
	b := newBound(t)
	r := b.run()
	door := b.door(r.Robot)
	b.say("last", "one", "two", "dear", "last", "dear", "card")
	b.awaitReceipts(7)
	require.Equal(t, []string{"none", "echo one", "echo two", "dear", "dear=dear;two=echo two;one=echo one;", "busy", "digits"}, b.texts("oUser-1"))

	w := httptest.NewRecorder()
	m := http.NewServeMux()
	for pattern, h := range r.PersonalOps() {
		m.Handle(pattern, h)
	}
	m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/ops/v1/users/card/oUser-1/actions", nil))
	var seen struct{ Actions []engine.Action }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &seen), w.Body.String())
	require.Len(t, seen.Actions, 3)
	require.Equal(t, "card", seen.Actions[0].What)
	require.Equal(t, "card", seen.Actions[0].Rule)
	require.Equal(t, "answered", seen.Actions[0].State)
	require.Positive(t, seen.Actions[0].At)

	status, text := door("DELETE", "/v1/accounts/card/users/oUser-1/data", "")
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `"erased":["last actions","dialogue","counts of limits","what is known of the binding"]`)
	require.Contains(t, text, "in Kafka")
	status, text = door("DELETE", "/v1/accounts/card/users/bad%20id/data", "")
	require.Equal(t, 400, status, text)
	b.say("1234", "last", "dear")
	b.awaitReceipts(10)
	require.Equal(t, []string{"echo 1234", "1234=echo 1234;", "dear"}, b.texts("oUser-1")[7:], "no dialogue, no actions, no count is left")
}

// What was kept is erased also when the configuration keeps nothing any more.
func TestErasureWhateverTheConfigurationSays(t *testing.T) {
	b := newBound(t)
	h, err := history.New(b.cfg.History, b.redis, nil)
	require.NoError(t, err)
	h.Add(t.Context(), "card", "oUser-1", engine.Action{ID: "1", What: "hi"})
	d, err := dialogue.New(dialogue.Config{Key: sealKey}, b.redis, nil)
	require.NoError(t, err)
	stands := func(n int64) *dialogue.Place {
		p, err := d.Open(t.Context(), "card", "oUser-1", dialogue.Mark{ID: fmt.Sprint(n), Topic: "t", Offset: n, At: time.Now()})
		require.NoError(t, err)
		return p
	}
	require.NoError(t, d.Move(t.Context(), stands(1), &engine.State{}, time.Minute))
	require.NotNil(t, stands(2).State, "the dialogue is there")

	b.cfg.History.Keep, b.cfg.Dialogue.Key, b.cfg.Binding.Backend = 0, "", ""
	b.use("version: 1\nfallback: busy\nrules:\n  - {name: echo, match: {text: {any: true}}, reply: {text: x}}\n")
	r, err := robot.New(b.cfg, nil, robot.Deps{Kafka: b.kafka, Topics: b.topics, Publisher: b.world, Redis: b.redis, Rules: b.engine})
	require.NoError(t, err)
	e, err := r.Erase(t.Context(), "card", "oUser-1")
	require.NoError(t, err)
	require.Equal(t, []string{"last actions", "dialogue", "counts of limits"}, e.Erased)
	require.Contains(t, strings.Join(e.Kept, "\n"), "class: personal")
	require.Contains(t, strings.Join(e.Kept, "\n"), "cached answers about the binding")
	last, err := h.Last(t.Context(), "card", "oUser-1")
	require.NoError(t, err)
	require.Empty(t, last)
	require.Nil(t, stands(2).State)
}

func TestRulesThatAskWhatNobodyKnows(t *testing.T) {
	b := newBound(t)
	b.cfg.Binding.Backend = "nobody"
	require.ErrorContains(t, b.cfg.Validate(), "robot.binding.backend \"nobody\": it is none of robot.backends")
	b.cfg.Binding.Backend, b.cfg.History.Keep = "", 0
	deps := robot.Deps{Kafka: b.kafka, Topics: b.topics, Publisher: b.world, Redis: b.redis, Rules: b.engine}
	_, err := robot.New(b.cfg, nil, deps)
	require.ErrorContains(t, err, "robot.binding.backend")
	b.cfg.Binding.Backend = "core"
	_, err = robot.New(b.cfg, nil, deps)
	require.ErrorContains(t, err, "robot.history.keep")
}
