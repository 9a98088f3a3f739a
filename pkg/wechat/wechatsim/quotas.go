package wechatsim

import "time"

// quotas counts calls per path: by day (to midnight in Beijing) and by minute.
type quotas struct {
	limits Limits
	paths  map[string]*usage
	month  int
	clears int
}

type usage struct {
	day, used int
	minute    int64
	inMinute  int
}

func (q *quotas) of(path string, now time.Time) *usage {
	if q.paths == nil {
		q.paths = map[string]*usage{}
	}
	u := q.paths[path]
	if u == nil {
		u = &usage{}
		q.paths[path] = u
	}
	if day := dayOf(now); day != u.day {
		u.day, u.used = day, 0
	}
	if minute := now.Unix() / 60; minute != u.minute {
		u.minute, u.inMinute = minute, 0
	}
	return u
}

// spend counts one call and returns 0, 45009 or 45011. A refused call costs nothing.
func (q *quotas) spend(path string, now time.Time) int {
	u := q.of(path, now)
	if limit := q.limits.Daily[path]; limit > 0 && u.used >= limit {
		return errDailyQuota
	}
	if limit := q.limits.PerMinute[path]; limit > 0 && u.inMinute >= limit {
		return errMinuteQuota
	}
	u.used++
	u.inMinute++
	return 0
}

// clear resets the daily counts, or returns 48006 when the month's clears are used.
func (q *quotas) clear(now time.Time) int {
	if month := monthOf(now); month != q.month {
		q.month, q.clears = month, 0
	}
	if q.clears >= q.limits.ClearsPerMonth {
		return errNoClearsLeft
	}
	q.clears++
	for _, u := range q.paths {
		u.used = 0
	}
	return 0
}
