package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
	"tidegate/proxy/queues"
)

func TestAheadTexts(t *testing.T) {
	zh, en := defaultAhead(), defaultAhead()
	en.Language = "en"
	for _, c := range []struct {
		n      int64
		wait   time.Duration
		zh, en string
	}{
		{0, 0, "前面约有 1 人，预计等待 10 秒。", "About 1 ahead of you, expected wait: 10 seconds."},
		{7, 9 * time.Second, "前面约有 7 人，预计等待 10 秒。", "About 7 ahead of you, expected wait: 10 seconds."},
		{123, 33 * time.Second, "前面约有 120 人，预计等待 40 秒。", "About 120 ahead of you, expected wait: 40 seconds."},
		{996, 51 * time.Second, "前面约有 1000 人，预计等待 1 分钟。", "About 1000 ahead of you, expected wait: 1 minute."},
		{4567, 80 * time.Second, "前面约有 4600 人，预计等待 1 分 30 秒。", "About 4600 ahead of you, expected wait: 1 minute 30 seconds."},
		{20000, 5*time.Minute + 1, "前面约有 20000 人，预计等待 6 分钟。", "About 20000 ahead of you, expected wait: 6 minutes."},
		{99, time.Hour, "前面约有 99 人，预计等待 60 分钟。", "About 99 ahead of you, expected wait: 60 minutes."},
		{99, time.Hour + 1, "前面约有 99 人，预计等待 1 小时以上。", "About 99 ahead of you, expected wait: more than an hour."},
	} {
		p := queues.Place{Ahead: c.n, Wait: c.wait}
		require.Equal(t, c.zh, zh.text(p))
		require.Equal(t, c.en, en.text(p))
	}
}

func TestAheadConfig(t *testing.T) {
	good := defaultAhead()
	good.Enabled = true
	require.NoError(t, good.validate(queues.DefaultConfig()))
	for want, change := range map[string]func(*AheadConfig, *queues.Config){
		"proxy.ahead.enabled: it needs the watch": func(_ *AheadConfig, q *queues.Config) { q.Poll = 0 },
		"proxy.ahead.threshold 0s":                func(a *AheadConfig, _ *queues.Config) { a.Threshold = 0 },
		"proxy.ahead.interval 48h":                func(a *AheadConfig, _ *queues.Config) { a.Interval = 48 * time.Hour },
		`proxy.ahead.language "fr"`:               func(a *AheadConfig, _ *queues.Config) { a.Language = "fr" },
		"proxy.ahead.text_zh is empty":            func(a *AheadConfig, _ *queues.Config) { a.TextZh = " " },
		"proxy.ahead.text_zh: {people} and":       func(a *AheadConfig, _ *queues.Config) { a.TextZh = "{persons}" },
		"proxy.ahead.text_en: with its numbers":   func(a *AheadConfig, _ *queues.Config) { a.Language, a.TextEn = "en", strings.Repeat("x", 2049) },
	} {
		a, q := good, queues.DefaultConfig()
		change(&a, &q)
		require.ErrorContains(t, a.validate(q), want)
	}
	off := AheadConfig{}
	require.NoError(t, off.validate(queues.Config{}), "what is off is not checked")
}

func TestNotesAreReadBack(t *testing.T) {
	p := queues.Place{Ahead: 120, Wait: 40 * time.Second}
	got, ok := placeOf(noteOf(p))
	require.True(t, ok)
	require.Equal(t, p, got)
	for _, bad := range []string{"", "x", "1", "-1 5", "1 -5"} {
		_, ok := placeOf(bad)
		require.False(t, ok, bad)
	}
}

// Off is the default, and then there is nothing to ask.
func TestAheadIsOffByDefault(t *testing.T) {
	require.False(t, DefaultConfig().Ahead.Enabled)
	require.Nil(t, newAhead(DefaultConfig().Ahead, &queues.Watch{}, struct{ Notices }{}, prometheus.NewRegistry()))
	_, said := (&Proxy{}).notice(t.Context(), arrival{}, &wire.Callback{}, false)
	require.False(t, said)
}
