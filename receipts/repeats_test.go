package receipts_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/alarm"
	"tidegate/pkg/sqldb/sqldbtest"
	"tidegate/pkg/wire"
	"tidegate/receipts"
	"tidegate/receipts/store"
)

// repeat is the n-th repeat, of a user, some time ago.
func (w *world) repeat(n, user int, ago time.Duration) {
	w.Helper()
	id, hash := idOf(10_000 + n)
	w.put(w.topics.Repeats(), &wire.Repeat{ID: id, IdentityHash: hash, Account: "bank", OpenID: openID(user), Action: "CLICK:balance",
		Reason: "same action within 10s, by proxy.repeats.rules[0]", Rule: "proxy.repeats.rules[0]", WindowMS: 10_000, At: w.clock.now().Add(-ago).UnixMilli()})
}

// repeated waits until the room has counted n repeats.
func (w *world) repeated(n int) {
	w.Helper()
	require.Eventually(w, func() bool { return int(w.metric("tidegate_receipts_repeats_total")) == n }, 30*time.Second, 10*time.Millisecond)
}

func (w *world) told(n int) []alarm.Transition {
	w.Helper()
	require.Eventually(w, func() bool { return len(w.alarms.all()) >= n }, 30*time.Second, 10*time.Millisecond)
	got := w.alarms.all()
	require.Len(w, got, n)
	return got
}

// ops asks the operations endpoint.
func (w *world) ops(query string) (int, string) {
	w.Helper()
	mux := http.NewServeMux()
	for pattern, h := range w.room.Ops() {
		mux.Handle(pattern, h)
	}
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/ops/v1/repeats"+query, http.NoBody))
	return rec.Code, rec.Body.String()
}

func (w *world) repeatsView(query string) receipts.RepeatsView {
	w.Helper()
	code, text := w.ops(query)
	require.Equal(w, http.StatusOK, code, text)
	require.NotContains(w, text, "oFollower", "openids stay inside")
	var v receipts.RepeatsView
	require.NoError(w, json.Unmarshal([]byte(text), &v))
	return v
}

func TestAUserWhoRepeatsTooOftenIsToldOnce(t *testing.T) {
	each(t, func(w *world) {
		for n := range 19 {
			w.repeat(n, 1, 0)
			w.repeat(n, 1, 0) // the queue brings it twice
		}
		w.repeat(100, 2, 0) // somebody else
		w.repeated(20)
		require.Empty(w, w.alarms.all())
		for n := 19; n < 60; n++ {
			w.repeat(n, 1, 0)
		}
		w.repeated(61)
		user := w.hasher.OpenID(openID(1))
		fired := w.told(1)[0]
		require.True(w, fired.Firing)
		require.Equal(w, "user_repeats", fired.Name)
		require.Equal(w, "bank user "+user, fired.Subject)
		require.Equal(w, alarm.Warning, fired.Severity)
		require.Contains(w, fired.Text, user)
		require.Contains(w, fired.Text, "20 times or more within 1m0s")
		require.Contains(w, fired.TextZH, user)
		require.NotContains(w, fired.Text+fired.TextZH, openID(1))
		require.InDelta(w, 1, w.metric("tidegate_receipts_repeat_alarms_total"), 0)

		w.clock.step(11 * time.Minute)
		require.False(w, w.told(2)[1].Firing)
		for n := 200; n < 220; n++ {
			w.repeat(n, 1, 0)
		}
		require.True(w, w.told(3)[2].Firing, "not calm again: another alarm, since ten minutes are over")
	})
}

func TestABacklogOfTheDayBeforeRaisesNoAlarm(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	for n := range 30 {
		w.repeat(n, 1, time.Hour)
	}
	w.repeated(30)
	v := w.repeatsView("?since=2h")
	require.EqualValues(w, 30, v.Repeats)
	require.Empty(w, w.alarms.all())
}

func TestVeryManyUsersShareAnAlarm(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t), func(c *receipts.Config) { c.RepeatAlarm.At, c.RepeatAlarm.MaxAlarms = 3, 2 })
	n := 0
	for user := range 6 {
		for range 3 {
			w.repeat(n, user, 0)
			n++
		}
	}
	w.repeated(n)
	subjects := map[string]int{}
	for _, tr := range w.told(3) {
		subjects[tr.Subject]++
	}
	require.Equal(w, 1, subjects["bank more users"])
	require.Len(w, subjects, 3)
	require.InDelta(w, 3, w.metric("tidegate_receipts_repeat_alarms_total"), 0)
	w.clock.step(11 * time.Minute)
	for _, tr := range w.told(6)[3:] {
		require.False(w, tr.Firing)
		subjects[tr.Subject]++
	}
	for s, count := range subjects {
		require.Equal(w, 2, count, s)
	}
}

func TestOperationsSeeWhoRepeatsWhat(t *testing.T) {
	each(t, func(w *world) {
		require.Equal(w, receipts.RepeatsView{}.Repeats, w.repeatsView("").Repeats)
		_, empty := w.ops("")
		require.Contains(w, empty, `"top_users":[],"top_actions":[],"recent":[]`)
		for n := range 5 {
			w.repeat(n, 1, time.Duration(5-n)*time.Second)
		}
		w.repeat(5, 2, time.Minute)
		w.repeat(6, 3, 20*time.Minute)
		w.repeated(7)
		v := w.repeatsView("")
		require.EqualValues(w, 6, v.Repeats, "of the last ten minutes")
		require.EqualValues(w, 2, v.Users)
		require.Equal(w, w.hasher.OpenID(openID(1)), v.TopUsers[0].User, "as logs and alarms write it")
		require.EqualValues(w, 5, v.TopUsers[0].Repeats)
		require.Equal(w, "CLICK:balance", v.TopActions[0].Action)
		require.EqualValues(w, 2, v.TopActions[0].Users)
		id, _ := idOf(10_004)
		require.Equal(w, id, v.Recent[0].ID)
		require.Equal(w, "same action within 10s, by proxy.repeats.rules[0]", v.Recent[0].Reason)
		from, err := time.Parse(time.RFC3339, v.From)
		require.NoError(w, err)
		to, err := time.Parse(time.RFC3339, v.To)
		require.NoError(w, err)
		require.Equal(w, 10*time.Minute, to.Sub(from))

		require.EqualValues(w, 7, w.repeatsView("?since=1h").Repeats)
		require.Len(w, w.repeatsView("?since=1h&limit=1").TopUsers, 1)
		require.Len(w, w.repeatsView("?account=bank&limit=3").Recent, 3)
		require.Zero(w, w.repeatsView("?account=shop").Repeats)
	})
}

func TestWrongQuestionsAboutRepeatsAreNamed(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	for query, want := range map[string]string{
		"?since=10":              `since is \"10\": use a duration from 1s to 168h`,
		"?since=-1m":             "use a duration",
		"?since=169h":            "use a duration",
		"?since=":                "parameter since is empty",
		"?limit=0":               "use a whole number from 1 to 100",
		"?limit=101":             "use a whole number from 1 to 100",
		"?limit=5&limit=6":       "parameter limit comes 2 times",
		"?account=../x":          "is no account's name",
		"?account=loans":         "the account loans is not configured here",
		"?user=abc":              `unknown parameter \"user\": use some of account, since, limit`,
		"?since=1m;account=bank": "the query is not well-formed",
	} {
		code, text := w.ops(query)
		require.Equal(w, http.StatusBadRequest, code, query)
		require.Contains(w, text, want, query)
	}
}

func TestRepeatsAreKeptWhereCallbacksAreNot(t *testing.T) {
	each(t, func(w *world) {
		w.repeat(1, 1, 0)
		id, _ := idOf(10_001)
		w.message(id, wire.Repeated)
	}, func(c *receipts.Config) { c.KeepCallbacks = false })
}

func TestWithoutTheDatabaseRepeatsCannotBeShown(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t))
	w.stop()
	require.NoError(t, w.db.Close())
	code, text := w.ops("")
	require.GreaterOrEqual(t, code, 500, text)
	require.NotContains(t, text, "sql")
}

func TestWrongSettingsOfTheRepeatAlarmAreNamed(t *testing.T) {
	for field, change := range map[string]func(*receipts.RepeatAlarm){
		"at":         func(c *receipts.RepeatAlarm) { c.At = 1 },
		"within":     func(c *receipts.RepeatAlarm) { c.Within = 0 },
		"calm":       func(c *receipts.RepeatAlarm) { c.Calm = time.Second },
		"max_users":  func(c *receipts.RepeatAlarm) { c.At, c.MaxUsers = 1000, 1_000_000 },
		"max_alarms": func(c *receipts.RepeatAlarm) { c.MaxAlarms = 0 },
	} {
		c := receipts.DefaultConfig()
		change(&c.RepeatAlarm)
		require.ErrorContains(t, c.Validate(), "receipts.repeat_alarm."+field)
	}
	c := receipts.DefaultConfig()
	c.RepeatAlarm.At = 0
	require.NoError(t, c.Validate(), "off")
}

// With the alarm off, repeats are counted and shown all the same.
func TestTheAlarmCanBeOff(t *testing.T) {
	w := newWorld(t, sqldbtest.OpenSQLite(t), func(c *receipts.Config) { c.RepeatAlarm.At = 0 })
	for n := range 40 {
		w.repeat(n, 1, 0)
	}
	w.repeated(40)
	require.Empty(w, w.alarms.all())
	n, err := w.room.Store().Count(context.Background(), store.Filter{States: []wire.State{wire.Repeated}}, 100)
	require.NoError(t, err)
	require.Equal(t, 40, n)
}
