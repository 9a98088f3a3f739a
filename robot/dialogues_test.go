package robot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/robot/dialogue"
	"tidegate/robot/engine"
	"tidegate/robot/plugin"
)

const talkRules = `version: 1
fallback: busy
rules:
  - {name: desk, match: {text: {equals: 人工}}, answer: at_once, hand_over: true}
  - name: balance
    match: {text: {equals: balance}}
    fallback: try later
    dialogue:
      steps:
        - {ask: {text: "digits?"}, store: digits, regexp: '\d{4}', error: {text: four digits}}
        - {ask: {text: "sure?"}, store: sure, choices: {yes: [y], no: [n]}}
    call: {backend: core, path: /ask, body: {text: "{{ .Vars.digits }} {{ .Vars.sure }}"}}
    reply: {text: "{{ .Answer.text }}"}
  - {name: dear, match: {text: {equals: dear}}, limit: {rate: 2 per 1h, instead: {text: enough}}, reply: {text: dear}}
  - {name: smart, match: {text: {prefix: ai}}, engine: {name: smart, stay: 5m}, fallback: engine away}
  - {name: press, match: {event: CLICK}, reply: {text: pressed}}
  - {name: echo, match: {text: {any: true}}, reply: {text: "echo {{ .Content }}"}}
`

// talking is a world whose robots know Redis.
type talking struct {
	*world
	redis *redis.Client
	mem   *redismem.Server // nil if a real one is used
	calls atomic.Int64
	n     int
}

func newTalking(t *testing.T, lasting bool) *talking {
	t.Helper()
	k := &talking{world: newWorld(t, "card")}
	addr := os.Getenv("TIDEGATE_TEST_REDIS")
	if addr == "" || !lasting {
		s, err := redismem.Start("")
		require.NoError(t, err)
		t.Cleanup(s.Close)
		k.mem, addr = s, s.Addr()
	}
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Timeout, cfg.Prefix = []string{addr}, time.Second, k.group
	var err error
	k.redis, err = redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.redis.Close()) })
	k.cfg.Dialogue.Key = "a deployment's key of some length"
	k.cfg.Engines = []plugin.Config{{Name: "smart", URL: "http://127.0.0.1:1/", Secret: "an engine's secret of some length", Allow: []string{"127.0.0.1"}, Attempts: 1}}
	k.use(talkRules)
	k.backend(func(rw http.ResponseWriter, r *http.Request) {
		k.calls.Add(1)
		var in struct{ Text string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		_, _ = fmt.Fprintf(rw, `{"text":"core %s"}`, in.Text)
	})
	return k
}

func (k *talking) use(src string) {
	k.t.Helper()
	var err error
	k.engine, err = engine.Parse("rules.yaml", []byte(src), engine.Known{})
	require.NoError(k.t, err)
}

func (k *talking) run() *running {
	k.t.Helper()
	k.reg = prometheus.NewRegistry()
	r, err := robot.New(k.cfg, []robot.Account{account("card")}, robot.Deps{
		Kafka: k.kafka, Topics: k.topics, Publisher: k.world, Redis: k.redis, Rules: k.engine, Log: k.log,
		Hasher: telemetry.NewHasher([]byte("k")), Registry: k.reg, Now: k.now, Node: "node-1",
	})
	require.NoError(k.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	stop := func() { once.Do(func() { cancel(); require.NoError(k.t, <-done) }) }
	k.t.Cleanup(stop)
	return &running{r, stop}
}

// say sends messages of one follower, in order, and gives their letters.
func (k *talking) say(texts ...string) (sent []*wire.Callback) {
	for _, text := range texts {
		k.n++
		c := callback("card", "oUser-1", k.n, text)
		k.send(c)
		sent = append(sent, c)
	}
	return sent
}

func TestADialogueThroughTheQueue(t *testing.T) {
	k := newTalking(t, true)
	k.run()
	k.say("balance", "12", "1234")
	k.n++
	press := callback("card", "oUser-1", k.n, "")
	press.MsgType, press.Event, press.EventKey = "event", "CLICK", "A"
	k.send(press)
	k.say("y", "1234")
	k.awaitReceipts(6)
	require.Equal(t, []string{"digits?", "four digits", "sure?", "pressed", "core 1234 yes", "echo 1234"}, k.texts("oUser-1"))
	require.EqualValues(t, 1, k.calls.Load())
	for _, entry := range k.logs.All() {
		require.NotContains(t, fmt.Sprint(entry.Message, entry.ContextMap()), "1234")
	}
	for _, r := range k.receipts() {
		require.NotContains(t, r.Detail+r.Reason, "1234")
	}
}

// The robot dies after the dialogue has moved and before its question is out;
// everything since the last commit comes again, and the callbacks after it.
func TestACrashInTheMiddleOfADialogueDoesNoHarm(t *testing.T) {
	k := newTalking(t, true)
	lost := errors.New("the queue is away")
	first := k.run()
	k.setRefuse(func(r kafka.Record) error {
		if strings.Contains(string(r.Value), "sure?") {
			return lost
		}
		return nil
	})
	// Another follower's callback that cannot be finished keeps the offset low.
	stuck := callback("card", neighbour("oUser-1"), 1, "sure?")
	k.send(stuck)
	k.say("hello", "balance", "1234")
	require.Eventually(t, func() bool { return len(k.texts("oUser-1")) == 2 && k.moved(3) }, patient, 10*time.Millisecond)
	first.stop()
	require.Equal(t, []string{"echo hello", "digits?"}, k.texts("oUser-1"))

	k.setRefuse(nil)
	k.run()
	k.say("y")
	// What was answered before may come again.
	require.Eventually(t, func() bool { return slices.Contains(k.texts("oUser-1"), "core 1234 yes") }, patient, 10*time.Millisecond)
	require.NotContains(t, k.texts("oUser-1"), "four digits", "no message was taken for an answer to another question")
	ids := map[string]string{}
	for _, r := range k.replies() {
		if before, again := ids[r.ID]; again {
			require.Equal(t, before, r.Content.Text, "worked again, a callback says the same")
		}
		ids[r.ID] = r.Content.Text
	}
	require.EqualValues(t, 1, k.calls.Load())
}

// neighbour is a follower whose callbacks share a partition with another's.
func neighbour(of string) string {
	for i := 0; ; i++ {
		if n := fmt.Sprint("oStuck-", i); kafka.Partition([]byte(n), wire.PartitionsEmbedded) == kafka.Partition([]byte(of), wire.PartitionsEmbedded) {
			return n
		}
	}
}

// moved reports whether the dialogue has moved for the n-th callback of the
// user.
func (k *talking) moved(n int) bool {
	s, err := dialogue.New(k.cfg.Dialogue, k.redis, nil)
	require.NoError(k.t, err)
	p, err := s.Open(k.t.Context(), "card", "oUser-1", dialogue.Mark{ID: callback("card", "oUser-1", n, "").ID})
	require.NoError(k.t, err)
	return p.State != nil && p.State.Step == 0 && len(p.State.Vars) == 0
}

// While Redis is away messages are held, menu buttons are not; after max_age the
// follower gets the fallback text, and nobody was put on a wrong branch.
func TestRedisAwayHoldsMessagesAndThenSaysSo(t *testing.T) {
	k := newTalking(t, false)
	k.cfg.MaxAge = time.Second
	k.run()
	k.say("balance")
	k.awaitReceipts(1)
	k.mem.Close()
	held := k.say("1234")[0]
	press := callback("card", "oOther", 1, "")
	press.MsgType, press.Event, press.EventKey = "event", "CLICK", "A"
	k.send(press)
	require.Eventually(t, func() bool { return len(k.texts("oOther")) == 1 }, patient, 10*time.Millisecond)
	k.awaitReceipts(3)
	require.Equal(t, []string{"digits?", "busy"}, k.texts("oUser-1"))
	require.Contains(t, k.receipt(held.ID).Reason, "max_age 1s")
	require.NotEmpty(t, k.logs.FilterMessageSnippet("its key is held").All(), "it was held before")
}

func TestRedisThatComesBackInTimeLosesNothing(t *testing.T) {
	k := newTalking(t, false)
	k.run()
	k.say("balance")
	k.awaitReceipts(1)
	k.mem.Fail("LOADING Redis is loading the dataset in memory")
	k.say("1234")
	require.Eventually(t, func() bool { return k.logs.FilterMessageSnippet("its key is held").Len() > 0 }, patient, 10*time.Millisecond)
	require.Len(t, k.receipts(), 1)
	k.mem.Fail("")
	k.awaitReceipts(2)
	require.Equal(t, []string{"digits?", "sure?"}, k.texts("oUser-1"))
}

func TestTheDeskEndsADialogue(t *testing.T) {
	k := newTalking(t, true)
	k.run()
	k.say("balance")
	k.n++
	c := callback("card", "oUser-1", k.n, "人工")
	c.Answered = "desk" // the door has handed the follower over
	k.send(c)
	k.say("1234")
	k.awaitReceipts(3)
	require.Equal(t, []string{"digits?", "echo 1234"}, k.texts("oUser-1"))
}

func TestAFollowersShareOfARule(t *testing.T) {
	k := newTalking(t, true)
	k.run()
	k.say("dear", "dear", "dear", "dear")
	k.send(callback("card", "oUser-2", 1, "dear"))
	k.awaitReceipts(5)
	require.Equal(t, []string{"dear", "dear", "enough", "enough"}, k.texts("oUser-1"))
	require.Equal(t, []string{"dear"}, k.texts("oUser-2"))
}

func TestARuleSaysWhatALimitDoesWithoutRedis(t *testing.T) {
	k := newTalking(t, false)
	k.use(`version: 1
rules:
  - {name: open, match: {text: {equals: open}}, limit: 1 per 1h, reply: {text: go on}}
  - {name: shut, match: {text: {equals: shut}}, limit: {rate: 1 per 1h, redis_away: deny, instead: {text: not now}}, reply: {text: go on}}
`)
	k.mem.Close()
	k.run()
	k.say("open", "open", "shut")
	k.awaitReceipts(3)
	require.Equal(t, []string{"go on", "go on", "not now"}, k.texts("oUser-1"))
}

func TestAnExternalEngineAnswersKeepsAndLetsGo(t *testing.T) {
	k := newTalking(t, true)
	var ids []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids = append(ids, r.Header.Get("Webhook-Id"))
		var in struct {
			Dialogue struct{ Open bool }
			Vars     map[string]string
			Callback struct{ Content string }
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &in)
		switch in.Callback.Content {
		case "ai bad":
			_, _ = io.WriteString(w, `{"replies":[{"type":"text"}]}`)
		case "bye":
			_, _ = io.WriteString(w, `{"replies":[{"type":"text","text":"bye"}],"dialogue":"end"}`)
		default:
			_, _ = fmt.Fprintf(w, `{"replies":[{"type":"text","text":"%s %v %s"}],"dialogue":"stay","vars":{"last":"%s"}}`, in.Callback.Content, in.Dialogue.Open, in.Vars["last"], in.Callback.Content)
		}
	}))
	t.Cleanup(s.Close)
	k.cfg.Engines[0].URL = s.URL
	k.run()
	sent := k.say("ai bad", "ai", "more", "bye", "more")
	k.awaitReceipts(5)
	require.Equal(t, []string{"engine away", "ai false ", "more true ai", "bye", "echo more"}, k.texts("oUser-1"))
	require.Contains(t, k.receipt(sent[0].ID).Reason, "replies[0]")
	require.Equal(t, []string{sent[0].ID, sent[1].ID, sent[2].ID, sent[3].ID}, ids)
}

func TestDialoguesNeedAPlaceAndEnginesAnAddress(t *testing.T) {
	k := newTalking(t, false)
	deps := robot.Deps{Kafka: k.kafka, Topics: k.topics, Publisher: k.world, Redis: k.redis, Rules: k.engine, Log: k.log}
	cfg := k.cfg
	cfg.Dialogue = dialogue.Config{}
	_, err := robot.New(cfg, nil, deps)
	require.ErrorContains(t, err, "robot.dialogue.key")
	cfg = k.cfg
	cfg.Engines = nil
	_, err = robot.New(cfg, nil, deps)
	require.ErrorContains(t, err, `engine "smart", which is not configured`)
	cfg.Engines = []plugin.Config{{Name: "smart", URL: "http://169.254.169.254/"}}
	require.ErrorContains(t, cfg.Validate(), "robot.engines, entry 1 (smart): secret")
	cfg.Engines[0].Secret = "an engine's secret of some length"
	require.ErrorContains(t, cfg.Validate(), "not public")
	cfg.Engines[0].Allow = []string{"169.254.169.254"}
	cfg.Engines = append(cfg.Engines, cfg.Engines[0])
	require.ErrorContains(t, cfg.Validate(), "there twice")
}
