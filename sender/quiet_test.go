package sender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuietHoursEndWhenTheClockSaysSo(t *testing.T) {
	t.Parallel()
	at := func(zone, text string) time.Time {
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		v, err := time.ParseInLocation("2006-01-02 15:04", text, loc)
		require.NoError(t, err)
		return v
	}
	for _, c := range []struct{ from, to, zone, now, until string }{
		{"22:00", "08:00", "", "2026-03-01 21:59", ""},
		{"22:00", "08:00", "", "2026-03-01 22:00", "2026-03-02 08:00"},
		{"22:00", "08:00", "", "2026-03-02 00:30", "2026-03-02 08:00"},
		{"22:00", "08:00", "", "2026-03-02 07:59", "2026-03-02 08:00"},
		{"22:00", "08:00", "", "2026-03-02 08:00", ""},
		{"12:00", "14:00", "UTC", "2026-03-02 13:00", "2026-03-02 14:00"},
		{"12:00", "14:00", "UTC", "2026-03-02 14:00", ""},
		// The night in which the clock goes forward has an hour less, and the one
		// in which it goes back an hour more.
		{"22:00", "08:00", "Europe/Berlin", "2026-03-29 01:30", "2026-03-29 08:00"},
		{"22:00", "08:00", "Europe/Berlin", "2026-10-25 01:30", "2026-10-25 08:00"},
		{"", "", "", "2026-03-02 03:00", ""},
	} {
		q, err := QuietHours{QuietSpan: QuietSpan{From: c.from, To: c.to, Zone: c.zone}}.plan()
		require.NoError(t, err)
		zone := c.zone
		if zone == "" {
			zone = "Asia/Shanghai"
		}
		got := q.until(at(zone, c.now))
		if c.until == "" {
			require.True(t, got.IsZero(), "%+v: %s", c, got)
			continue
		}
		require.True(t, got.Equal(at(zone, c.until)), "%+v: %s", c, got)
	}
}

func TestQuietHoursOfTemplatesAndLanes(t *testing.T) {
	t.Parallel()
	var st station
	now := time.Date(2026, 3, 2, 3, 0, 0, 0, time.UTC)
	require.True(t, st.quietUntil("t", "bulk", now).IsZero())
	st.setQuiet(QuietHours{
		QuietSpan: QuietSpan{From: "02:00", To: "04:00", Zone: "UTC", Lanes: []string{"bulk"}},
		Templates: map[string]QuietSpan{"always": {}, "longer": {From: "02:00", To: "06:00"}},
	})
	require.Equal(t, now.Add(time.Hour), st.quietUntil("t", "bulk", now).UTC())
	require.True(t, st.quietUntil("t", "realtime", now).IsZero())
	require.True(t, st.quietUntil("always", "bulk", now).IsZero())
	require.Equal(t, now.Add(3*time.Hour), st.quietUntil("longer", "realtime", now).UTC())
}

func TestQuietHoursAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		span QuietSpan
		says string
	}{
		{QuietSpan{From: "22:00"}, "to is"}, {QuietSpan{From: "25:00", To: "08:00"}, "from is"}, {QuietSpan{From: "8", To: "9"}, "from is"},
		{QuietSpan{From: "08:00", To: "08:00"}, "both"}, {QuietSpan{Zone: "Mars/Base"}, "zone"}, {QuietSpan{Lanes: []string{"replies"}}, "lane"},
	} {
		require.ErrorContains(t, QuietHours{QuietSpan: c.span}.Validate(), c.says)
		require.ErrorContains(t, QuietHours{Templates: map[string]QuietSpan{"t": c.span}}.Validate(), "templates.t")
	}
}
