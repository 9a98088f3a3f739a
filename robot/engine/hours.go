package engine

import (
	"time"
	_ "time/tzdata" // a calendar's zone must exist on images without zone files (T56)

	"tidegate/pkg/wire"
)

// day names a date; civil dates have no zone.
type day struct {
	year  int
	month time.Month
	day   int
}

func dayOf(t time.Time) day {
	y, m, d := t.Date()
	return day{y, m, d}
}

// span is a time of the day in minutes. An end above 24 h reaches into the
// next day.
type span struct{ from, to int }

const dayMinutes = 24 * 60

// calendar says when somebody is there.
type calendar struct {
	name     string
	zone     *time.Location
	week     [7][]span // by time.Weekday
	holidays map[day]bool
	workdays map[day]bool // have Monday's hours, also where they are holidays
}

// open reports whether t lies in the calendar's hours. Hours over midnight
// belong to the day on which they begin.
func (c *calendar) open(t time.Time) bool {
	t = t.In(c.zone)
	minute := t.Hour()*60 + t.Minute()
	for _, s := range c.on(t) {
		if minute >= s.from && minute < s.to {
			return true
		}
	}
	for _, s := range c.on(t.AddDate(0, 0, -1)) {
		if minute+dayMinutes < s.to {
			return true
		}
	}
	return false
}

func (c *calendar) on(t time.Time) []span {
	switch d := dayOf(t); {
	case c.workdays[d]:
		return c.week[time.Monday]
	case c.holidays[d]:
		return nil
	}
	return c.week[t.Weekday()]
}

// moment is when the callback reached the door, so that working it again an
// hour later decides the same. A letter without it counts by WeChat's time.
func moment(c *wire.Callback) time.Time {
	if c.ReceivedAt > 0 {
		return time.UnixMilli(c.ReceivedAt)
	}
	return time.Unix(c.CreateTime, 0)
}

// anyOpen reports whether one of the calendars is open.
func anyOpen(list []*calendar, t time.Time) bool {
	for _, c := range list {
		if c.open(t) {
			return true
		}
	}
	return false
}
