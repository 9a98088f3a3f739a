package alarm

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// idle makes a herald without goroutines; its passes are called by the test.
// Deliveries go straight to the receiver's queue.
func idle(t *testing.T, node string, now func() time.Time, o func(*HeraldOptions)) (*Board, *Herald) {
	t.Helper()
	opt := options(node)
	opt.Now = now
	if o != nil {
		o(&opt)
	}
	h, err := newHerald(config(hook("ops", "http://127.0.0.1:9/")), opt)
	require.NoError(t, err)
	return NewBoard(zap.NewNop(), nil, now, h), h
}

// told empties the queue of messages.
func told(h *Herald) []string {
	var out []string
	for {
		select {
		case m := <-h.webhooks[0].queue:
			if m.Reminder {
				m.Status = "reminder"
			}
			out = append(out, m.Node+" "+m.Status)
		default:
			return out
		}
	}
}

func TestAnAlarmThatLastsIsToldAgain(t *testing.T) {
	now := noon
	b, h := idle(t, "n", func() time.Time { return now }, nil)
	b.Fire(faulty)
	h.pass(t.Context())
	require.Equal(t, []string{"n firing"}, told(h))
	for end := noon.Add(9 * time.Hour); now.Before(end); now = now.Add(10 * time.Second) {
		h.pass(t.Context())
	}
	require.Equal(t, []string{"n reminder", "n reminder"}, told(h))
	b.Resolve(faulty.Name, faulty.Subject)
	h.pass(t.Context())
	h.pass(t.Context())
	require.Equal(t, []string{"n resolved"}, told(h))
	b.Fire(faulty)
	h.pass(t.Context())
	require.Equal(t, []string{"n firing"}, told(h), "it is a new alarm, not a reminder")
}

// A reminder and the end say what was seen last; a newer text alone is no message.
func TestRemindersAndTheEndHaveTheLatestText(t *testing.T) {
	now := noon
	b, h := idle(t, "n", func() time.Time { return now }, nil)
	b.Fire(faulty)
	h.pass(t.Context())
	require.Equal(t, []string{"n firing"}, told(h))
	worse := faulty
	worse.Text = "no progress for 4 h at depth 99,000"
	b.Fire(worse)
	h.pass(t.Context())
	require.Empty(t, told(h))
	now = now.Add(h.cfg.RepeatEvery)
	h.pass(t.Context())
	m := <-h.webhooks[0].queue
	require.True(t, m.Reminder)
	require.Equal(t, worse.Text, m.Text)
	b.Resolve(faulty.Name, faulty.Subject)
	h.pass(t.Context())
	m = <-h.webhooks[0].queue
	require.Equal(t, "It is over; it lasted "+h.cfg.RepeatEvery.String()+". Before: "+worse.Text, m.Text)
}

// trio is three nodes over one Redis.
type trio struct {
	boards  [3]*Board
	heralds [3]*Herald
}

func newTrio(t *testing.T, addr string, repeat time.Duration) *trio {
	t.Helper()
	_, open := redisAt(t)
	var x trio
	for i, node := range []string{"a", "b", "c"} {
		x.boards[i], x.heralds[i] = idle(t, node, nil, func(o *HeraldOptions) { o.Redis = open(addr) })
		x.heralds[i].cfg.RepeatEvery = repeat
	}
	return &x
}

func (x *trio) pass(t *testing.T, nodes ...int) []string {
	t.Helper()
	var all []string
	for _, n := range nodes {
		x.heralds[n].pass(t.Context())
		all = append(all, told(x.heralds[n])...)
	}
	return all
}

// again makes everybody give his word as if 30 s had passed.
func (x *trio) again(t *testing.T, nodes ...int) []string {
	t.Helper()
	for _, n := range nodes {
		for _, i := range x.heralds[n].news {
			i.askedAt = i.askedAt.Add(-assertEvery)
		}
	}
	return x.pass(t, nodes...)
}

func TestThreeNodesRaiseOneAlarmAndResolveItOnce(t *testing.T) {
	engine, _ := redisAt(t)
	x := newTrio(t, engine, time.Hour)
	for _, b := range x.boards {
		b.Fire(faulty)
	}
	require.Equal(t, []string{"b firing"}, x.pass(t, 1, 0, 2))
	require.Empty(t, x.again(t, 0, 1, 2))

	// Their checks see the end one after the other; meanwhile the others go on.
	x.boards[1].Resolve(faulty.Name, faulty.Subject)
	require.Empty(t, x.pass(t, 1))
	require.Empty(t, x.again(t, 0, 2), "the one who told is gone; nobody tells again")
	x.boards[0].Resolve(faulty.Name, faulty.Subject)
	x.boards[2].Resolve(faulty.Name, faulty.Subject)
	require.Equal(t, []string{"c resolved"}, x.pass(t, 0, 2))

	x.boards[0].Fire(faulty)
	require.Equal(t, []string{"a firing"}, x.pass(t, 0), "the next time is a new alarm")
}

func TestAReminderIsGivenOnceInTheCluster(t *testing.T) {
	engine, _ := redisAt(t)
	x := newTrio(t, engine, time.Hour)
	for _, b := range x.boards {
		b.Fire(faulty)
	}
	require.Equal(t, []string{"a firing"}, x.pass(t, 0, 1, 2))
	// As if that had been two hours ago.
	_, said := keys(id{faulty.Name, faulty.Subject})
	then := strconv.FormatInt(time.Now().Add(-2*time.Hour).UnixMilli(), 10)
	require.NoError(t, x.heralds[0].once.redis.Set(t.Context(), said, then, time.Minute))
	require.Equal(t, []string{"c reminder"}, x.again(t, 2, 1, 0))
	require.Empty(t, x.again(t, 1, 0, 2))
}

// A node that died is forgotten once its word has lapsed: it does not keep the
// others from telling the end.
func TestANodeThatDiedKeepsNobodyFromTellingTheEnd(t *testing.T) {
	engine, _ := redisAt(t)
	x := newTrio(t, engine, time.Hour)
	for _, b := range x.boards {
		b.Fire(faulty)
	}
	require.Equal(t, []string{"a firing"}, x.pass(t, 0, 1, 2))
	// As if b had given its last word two minutes ago.
	seen, _ := keys(id{faulty.Name, faulty.Subject})
	lapsed := strconv.FormatInt(time.Now().Add(-30*time.Second).UnixMilli(), 10)
	_, err := redis.NewScript(`return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])`).Run(t.Context(), x.heralds[0].once.redis, []string{seen}, x.heralds[1].once.token, lapsed)
	require.NoError(t, err)
	x.boards[0].Resolve(faulty.Name, faulty.Subject)
	require.Empty(t, x.pass(t, 0), "c still sees it")
	x.boards[2].Resolve(faulty.Name, faulty.Subject)
	require.Equal(t, []string{"c resolved"}, x.pass(t, 2))
}

func TestLocalAlarmsAreToldByEachNode(t *testing.T) {
	engine, _ := redisAt(t)
	x := newTrio(t, engine, time.Hour)
	for _, b := range x.boards {
		b.Fire(Alarm{Name: "spool_held", Severity: Warning, Local: true})
	}
	require.Equal(t, []string{"a firing", "b firing", "c firing"}, x.pass(t, 0, 1, 2))
}

func TestRedisAwayEachNodeTells(t *testing.T) {
	engine, _ := redisAt(t)
	p, err := redismem.StartProxy(engine)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	x := newTrio(t, p.Addr(), time.Hour)

	p.Hang(true)
	for _, b := range x.boards {
		b.Fire(faulty)
	}
	require.Equal(t, []string{"a firing", "b firing", "c firing"}, x.pass(t, 0, 1, 2))
	require.Positive(t, p.Held(), "Redis must have been asked and have hung")
	require.Empty(t, x.again(t, 0), "but each only once")

	p.Hang(false)
	require.Empty(t, x.again(t, 0, 1, 2), "what was told is not told again when Redis is back")
	require.False(t, x.heralds[0].away)
	for _, b := range x.boards {
		b.Resolve(faulty.Name, faulty.Subject)
	}
	require.Equal(t, []string{"c resolved"}, x.pass(t, 0, 1, 2))
}

func TestRedisLostItsMemoryTheEndIsStillTold(t *testing.T) {
	engine, _ := redisAt(t)
	x := newTrio(t, engine, time.Hour)
	x.boards[0].Fire(faulty)
	require.Equal(t, []string{"a firing"}, x.pass(t, 0))
	// Another deployment's keys are as good as an empty Redis.
	y := newTrio(t, engine, time.Hour)
	x.heralds[0].once.redis = y.heralds[0].once.redis
	require.Empty(t, x.again(t, 0), "it knows that it told")
	x.boards[0].Resolve(faulty.Name, faulty.Subject)
	require.Equal(t, []string{"a resolved"}, x.pass(t, 0))
}

func TestWhatFiresNowCanBeAsked(t *testing.T) {
	now := noon
	b := NewBoard(zap.NewNop(), nil, func() time.Time { return now })
	ask := func() map[string]any {
		rec := httptest.NewRecorder()
		b.Handler("door-1").ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/v1/alarms", http.NoBody))
		require.Equal(t, http.StatusOK, rec.Code)
		var m map[string]any
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &m))
		return m
	}
	require.Equal(t, map[string]any{"node": "door-1", "alarms": []any{}}, ask())
	b.Fire(faulty)
	now = now.Add(time.Second)
	b.Fire(Alarm{Name: "spool_held", Severity: Warning, Text: "x", Local: true})
	alarms := ask()["alarms"].([]any)
	require.Len(t, alarms, 2)
	require.Equal(t, map[string]any{
		"name": "queue_faulty", "title": "A queue makes no progress", "subject": faulty.Subject, "severity": "critical", "text": faulty.Text,
		"local": false, "since": "2026-03-01T12:00:00+08:00",
	}, alarms[0])
	b.Resolve(faulty.Name, faulty.Subject)
	require.Len(t, ask()["alarms"], 1)
}
