package receipts

import (
	"cmp"
	"math"
	"slices"
	"time"

	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// A band is what a share usually is: the median of former hours, and around it a
// width of so many median deviations, which a few wild hours do not move (unlike
// mean and standard deviation). Only what leaves it upwards needs a person.

// measure is a share that is watched: of an account's failures, of one reason
// among them, or of messages without a receipt.
type measure struct {
	account string
	alarm   string
	state   wire.State // of a reason
	errcode int
}

// reading is a measure in one hour.
type reading struct {
	part, of int64
	reason   string
}

func (r reading) share() float64 { return float64(r.part) / float64(max(r.of, 1)) }

// band is what is usual.
type band struct {
	median, high float64
	hours        int // that it rests on
}

// bandOf makes the band of the shares of former hours.
func bandOf(shares []float64, width, least float64) band {
	m := median(shares)
	off := make([]float64, len(shares))
	for i, s := range shares {
		off[i] = math.Abs(s - m)
	}
	const normal = 1.4826 // makes the median deviation of normal noise its standard deviation
	return band{median: m, high: m + max(width*normal*median(off), least), hours: len(shares)}
}

func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	if n := len(s) / 2; len(s)%2 == 1 {
		return s[n]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// readings turns the counts of hours into readings, by measure and hour.
func readings(counts []store.HourCount) map[measure]map[time.Time]reading {
	type accountHour struct {
		account string
		hour    time.Time
	}
	ended, reported := map[accountHour]int64{}, map[accountHour]int64{}
	for _, c := range counts {
		if !c.State.Terminal() && c.State != wire.Accepted || c.State == wire.Cancelled {
			continue
		}
		k := accountHour{c.Account, c.Hour}
		ended[k] += c.N
		switch c.State {
		case wire.NoReceipt, wire.Delivered, wire.RefusedByUser, wire.FailedByPlatform:
			reported[k] += c.N
		}
	}
	out := map[measure]map[time.Time]reading{}
	add := func(m measure, c store.HourCount, of int64) {
		if out[m] == nil {
			out[m] = map[time.Time]reading{}
		}
		r := out[m][c.Hour]
		r.part, r.of, r.reason = r.part+c.N, of, cmp.Or(r.reason, c.Reason)
		out[m][c.Hour] = r
	}
	for _, c := range counts {
		info, _ := c.State.Info()
		k := accountHour{c.Account, c.Hour}
		switch {
		case c.State == wire.Cancelled || !info.Failure: // cancelling is ours
		case c.State == wire.NoReceipt:
			add(measure{account: c.Account, alarm: alarmNoReceipt}, c, reported[k])
		default:
			add(measure{account: c.Account, alarm: alarmFailures}, c, ended[k])
			add(measure{account: c.Account, alarm: alarmReason, state: c.State, errcode: c.ErrCode}, c, ended[k])
		}
	}
	fillZeros(out, func(m measure, hour time.Time) int64 {
		if m.alarm == alarmNoReceipt {
			return reported[accountHour{m.account, hour}]
		}
		return ended[accountHour{m.account, hour}]
	}, counts)
	return out
}

// fillZeros adds the hours in which a measure had nothing: they are what is usual.
func fillZeros(all map[measure]map[time.Time]reading, of func(measure, time.Time) int64, counts []store.HourCount) {
	hours := map[time.Time]bool{}
	for _, c := range counts {
		hours[c.Hour] = true
	}
	for m, by := range all {
		for h := range hours {
			if _, ok := by[h]; !ok {
				if n := of(m, h); n > 0 {
					by[h] = reading{of: n}
				}
			}
		}
	}
}

// finding is a measure outside of its band.
type finding struct {
	measure
	reading
	band
	hour time.Time
}

// judge tells which measures have left their bands in one of the hours that are
// looked at. history are the hours before those.
func (c BandConfig) judge(all map[measure]map[time.Time]reading, looked []time.Time) []finding {
	var out []finding
	for m, by := range all {
		for _, hour := range looked {
			r, ok := by[hour]
			if !ok || r.of < int64(c.MinMessages) || r.part < int64(c.MinMessages)/20 {
				continue
			}
			var shares []float64
			for h, former := range by {
				if h.Before(looked[0]) && former.of >= int64(c.MinMessages) {
					shares = append(shares, former.share())
				}
			}
			b := bandOf(shares, c.Width, c.Least)
			if b.hours < c.MinHours {
				b.high = c.Always // too little is known: only what is never usual
			}
			if r.share() > min(b.high, c.Always) {
				out = append(out, finding{m, r, b, hour})
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.alarm, b.alarm), cmp.Compare(b.part, a.part), cmp.Compare(a.state, b.state), cmp.Compare(a.errcode, b.errcode))
	})
	return out
}
