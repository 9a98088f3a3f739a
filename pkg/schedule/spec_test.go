package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/schedule"
)

func spec(t *testing.T, text, zone string) schedule.Spec {
	t.Helper()
	s, err := schedule.ParseSpec(text, zone)
	require.NoError(t, err)
	return s
}

// Slots come in order, follow the zone's wall, and survive its changes: none is
// skipped because its time did not exist, none comes twice because it did twice.
func TestSlotsOfASpecification(t *testing.T) {
	for name, c := range map[string]struct {
		spec, zone, after string
		slots             []string
	}{
		"daily in Shanghai":       {"30 6 * * *", "Asia/Shanghai", "2026-03-01T00:00:00Z", []string{"2026-03-01T22:30:00Z", "2026-03-02T22:30:00Z"}},
		"a slot is behind itself": {"30 6 * * *", "Asia/Shanghai", "2026-03-01T22:30:00Z", []string{"2026-03-02T22:30:00Z"}},
		"weekdays":                {"0 9 * * 1-5", "Asia/Shanghai", "2026-03-06T02:00:00Z", []string{"2026-03-09T01:00:00Z"}},
		"last of February":        {"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		"every counts from 1970":  {"@every 7m", "UTC", "1970-01-01T00:00:01Z", []string{"1970-01-01T00:07:00Z", "1970-01-01T00:14:00Z"}},
		"every, before 1970":      {"@every 7m", "UTC", "1969-12-31T23:59:59Z", []string{"1970-01-01T00:00:00Z"}},
		// New York, 8 March 2026: from 02:00 to 03:00, which is 07:00Z.
		"a time that does not exist": {"30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", []string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"}},
		"several that do not exist":  {"*/20 2 * * *", "America/New_York", "2026-03-08T00:00:00Z", []string{"2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"}},
		"hourly over the gap":        {"15 * * * *", "America/New_York", "2026-03-08T06:00:00Z", []string{"2026-03-08T06:15:00Z", "2026-03-08T07:15:00Z"}},
		// 1 November 2026: from 02:00 back to 01:00, which is 06:00Z.
		"a time that exists twice":     {"30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		"between the two":              {"45 1 * * *", "America/New_York", "2026-11-01T06:10:00Z", []string{"2026-11-02T06:45:00Z"}},
		"hourly over the doubled hour": {"15 * * * *", "America/New_York", "2026-11-01T05:00:00Z", []string{"2026-11-01T05:15:00Z", "2026-11-01T06:15:00Z", "2026-11-01T07:15:00Z"}},
		"midnight that does not exist": {"0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", []string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, c.spec, c.zone)
			at, err := time.Parse(time.RFC3339, c.after)
			require.NoError(t, err)
			for _, want := range c.slots {
				at = s.Next(at)
				require.Equal(t, want, at.UTC().Format(time.RFC3339))
			}
		})
	}
}

func TestSpecificationsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ spec, zone, field string }{
		{"30 6 * * *", "", "location"}, {"30 6 * * *", "Local", "location"}, {"30 6 * * *", "Mars/Base", "location"},
		{"", "UTC", "schedule"}, {"30 6 * *", "UTC", "schedule"}, {"60 6 * * *", "UTC", "schedule"}, {"@reboot", "UTC", "schedule"},
		{"TZ=UTC 30 6 * * *", "UTC", "schedule"}, {"CRON_TZ=UTC", "UTC", "schedule"}, {"0 0 30 2 *", "UTC", "schedule"},
	} {
		_, err := schedule.ParseSpec(c.spec, c.zone)
		require.Equal(t, fault.Invalid, fault.KindOf(err), "%q in %q: %v", c.spec, c.zone, err)
		require.Equal(t, c.field, fault.FieldOf(err))
	}
}

func FuzzSpec(f *testing.F) {
	for _, s := range []string{"30 6 * * *", "@every 7m", "@daily", "*/5 0-23/2 1,15 jan-mar mon", "TZ=", "0 0 30 2 *", "@every -1s"} {
		f.Add(s, int64(1772400000))
	}
	f.Fuzz(func(t *testing.T, text string, at int64) {
		s, err := schedule.ParseSpec(text, "America/New_York")
		if err != nil {
			return
		}
		from := time.Unix(at%4_000_000_000, 0)
		if next := s.Next(from); !next.IsZero() {
			require.True(t, next.After(from), "%q: %s is not behind %s", text, next, from)
		}
	})
}
