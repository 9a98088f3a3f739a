package alarm_test

import (
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tidegate/pkg/alarm"
)

type heard struct{ all []alarm.Transition }

func (h *heard) Tell(t alarm.Transition) { h.all = append(h.all, t) }

func TestOnlyTransitionsAreTold(t *testing.T) {
	now := time.Unix(1000, 0)
	h := &heard{}
	reg := prometheus.NewRegistry()
	b := alarm.NewBoard(zap.NewNop(), reg, func() time.Time { return now }, h)
	a := alarm.Alarm{Name: "queue_faulty", Subject: "bank callbacks/3", Severity: alarm.Critical, Text: "no progress"}

	b.Fire(a)
	now = now.Add(time.Minute)
	b.Fire(a)
	require.Len(t, h.all, 1)
	require.Len(t, b.Firing(), 1)
	require.Equal(t, 1, testutil.CollectAndCount(reg, "tidegate_alarm_firing"))

	b.Resolve(a.Name, "somebody else")
	require.Len(t, h.all, 1)
	b.Resolve(a.Name, a.Subject)
	b.Resolve(a.Name, a.Subject)
	require.Len(t, h.all, 2)
	require.False(t, h.all[1].Firing)
	require.Equal(t, time.Minute, h.all[1].At.Sub(h.all[1].Since))
	require.Empty(t, b.Firing())

	b.Fire(a)
	require.Len(t, h.all, 3)
}

// What fires is described as it is now, and that is no news.
func TestTheTextOfWhatFiresIsTheLatest(t *testing.T) {
	h := &heard{}
	b := alarm.NewBoard(zap.NewNop(), nil, nil, h)
	a := alarm.Alarm{Name: "queue_depth", Subject: "callbacks bank", Severity: alarm.Warning, Text: "60 records wait", TextZH: "60 条"}
	b.Fire(a)
	since := b.Firing()[0].Since
	a.Text, a.TextZH = "9000 records wait", "9000 条"
	b.Fire(a)
	b.Fire(alarm.Alarm{Name: a.Name, Subject: a.Subject, Severity: alarm.Warning})
	require.Len(t, h.all, 1)
	rec := httptest.NewRecorder()
	b.Handler("n").ServeHTTP(rec, httptest.NewRequest("GET", "/ops/v1/alarms", nil))
	require.Contains(t, rec.Body.String(), "9000 records wait")
	require.Equal(t, since, b.Firing()[0].Since)
	b.Resolve(a.Name, a.Subject)
	require.Equal(t, a, h.all[1].Alarm)
}

func TestNilBoardIsSilent(t *testing.T) {
	var b *alarm.Board
	b.Fire(alarm.Alarm{Name: "x"})
	b.Resolve("x", "")
	require.Empty(t, b.Firing())
}

// A full board is a mistake of ours: it is told once, and counted.
func TestAFullBoardIsLoggedOnce(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	reg := prometheus.NewRegistry()
	b := alarm.NewBoard(zap.New(core), reg, nil)
	fire := func(n int) {
		b.Fire(alarm.Alarm{Name: "queue_faulty", Subject: strconv.Itoa(n), Severity: alarm.Warning})
	}
	for n := range 5000 {
		fire(n)
	}
	fire(4999)
	held := len(b.Firing())
	require.Less(t, held, 5000)
	lost := func() int {
		all, err := reg.Gather()
		require.NoError(t, err)
		for _, m := range all {
			if m.GetName() == "tidegate_alarm_no_room_total" {
				return int(m.GetMetric()[0].GetCounter().GetValue())
			}
		}
		return -1
	}
	require.Equal(t, 1, logs.Len())
	require.Equal(t, 5001-held, lost())

	b.Resolve("queue_faulty", "0")
	fire(4999)
	require.Equal(t, 1, logs.Len(), "there was room for it")
	fire(4998)
	fire(4998)
	require.Equal(t, 2, logs.Len(), "it is full once more")
	require.Equal(t, 5001-held+2, lost())
}
