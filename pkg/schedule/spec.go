package schedule

import (
	"strings"
	"time"
	_ "time/tzdata" // the zone must exist on images without zone files (T56)

	"github.com/robfig/cron/v3"

	"tidegate/pkg/fault"
)

const (
	maxSpec = 200
	// starBit is how cron marks a field that was written as a star.
	starBit = 1 << 63
)

// Spec says when: cron's five fields, or @daily and the like, in a time zone,
// or "@every 10m".
//
// Where clocks are put forward or back, a job whose hours are written out
// follows the clock on the wall: a time that does not exist on that day runs at
// the moment of the change, one that exists twice runs the first time only. A
// job of every hour follows elapsed time. "@every" counts from 1970, so that all
// nodes agree whenever they were started.
type Spec struct {
	text, zone string
	loc        *time.Location
	every      time.Duration      // of @every; else 0
	fields     *cron.SpecSchedule // in loc
	wall       *cron.SpecSchedule // the same in UTC; nil if the hour is a star
}

// ParseSpec reads a specification. The zone must be named: a server's own zone
// is not what its operators think it is.
func ParseSpec(text, zone string) (Spec, error) {
	bad := func(field, format string, args ...any) (Spec, error) {
		return Spec{}, fault.New(fault.Invalid, "read schedule", format, args...).WithField(field)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		return bad("location", "%.60q is no time zone: write for instance Asia/Shanghai", zone)
	}
	if len(text) > maxSpec || strings.Contains(text, "TZ=") {
		return bad("schedule", "%.60q: use up to %d characters, and name the zone in its own setting", text, maxSpec)
	}
	s := Spec{text: text, zone: zone, loc: loc}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return bad("schedule", "%.60q: write five fields (minute, hour, day, month, weekday), for instance \"30 6 * * *\" for half past six, or @every 10m", text)
	}
	switch p := parsed.(type) {
	case cron.ConstantDelaySchedule:
		s.every = p.Delay
	case *cron.SpecSchedule:
		s.fields, p.Location = p, loc
		if p.Hour&starBit == 0 {
			wall := *p
			wall.Location = time.UTC
			s.wall = &wall
		}
	}
	if s.Next(time.Unix(0, 0)).IsZero() {
		return bad("schedule", "%q names no day that ever comes", text)
	}
	return s, nil
}

// String gives the specification as it was written.
func (s Spec) String() string { return s.text }

// Zone names the time zone.
func (s Spec) Zone() string { return s.zone }

// named tells specifications apart.
func (s Spec) named() string { return s.text + " in " + s.zone }

// In shows a time in the zone.
func (s Spec) In(t time.Time) time.Time { return t.In(s.loc) }

// Next is the first slot after t, or the zero time if none is within five years.
func (s Spec) Next(t time.Time) time.Time {
	if s.every > 0 {
		step := int64(s.every / time.Second)
		return time.Unix((floorDiv(t.Unix(), step)+1)*step, 0).In(s.loc)
	}
	t = t.In(s.loc)
	if s.wall == nil {
		return s.fields.Next(t)
	}
	w := onWall(t)
	for {
		if w = s.wall.Next(w); w.IsZero() {
			return w
		}
		// Wall times that were passed the first time are behind t already.
		if at := s.onDay(w); at.After(t) {
			return at
		}
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// onWall is what a clock on the wall shows, as a time in UTC.
func onWall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// onDay is when the wall's clock in the zone shows w: the first time if it does
// so twice, the moment of the change if it never does.
func (s Spec) onDay(w time.Time) time.Time {
	at := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, s.loc)
	since, until := at.ZoneBounds()
	switch shown := onWall(at); {
	case shown.After(w):
		return since
	case shown.Before(w):
		return until
	case since.IsZero():
		return at
	}
	_, now := at.Zone()
	_, before := since.Add(-time.Second).Zone()
	if first := at.Add(time.Duration(now-before) * time.Second); first.Before(since) && onWall(first).Equal(w) {
		return first
	}
	return at
}
