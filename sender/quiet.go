package sender

import (
	"fmt"
	"time"
	_ "time/tzdata" // machines without a time zone database are common in containers

	"tidegate/pkg/wire"
)

// QuietHours are the hours of the day in which an account sends no pushes. What
// comes due in them is held until they end and then goes with a ramp
// (sender.hold). Replies always go: the follower is awake.
type QuietHours struct {
	QuietSpan `koanf:",squash"`
	// Templates have hours of their own in place of these. An entry without From
	// and To always goes.
	Templates map[string]QuietSpan `koanf:"templates"`
}

// QuietSpan is one span of the day.
type QuietSpan struct {
	// From and To are times of day, "22:00" and "08:00"; From after To goes over
	// midnight. Both empty: no quiet hours.
	From string `koanf:"from"`
	To   string `koanf:"to"`
	// Zone is the time zone, Asia/Shanghai if empty.
	Zone string `koanf:"zone"`
	// Lanes are realtime and bulk; both if empty.
	Lanes []string `koanf:"lanes"`
}

const quietZone = "Asia/Shanghai"

// Validate names the first setting that cannot work.
func (q QuietHours) Validate() error {
	_, err := q.plan()
	return err
}

// quiet is QuietHours, read once.
type quiet struct {
	on        bool
	from, to  time.Duration // since the beginning of the day
	zone      *time.Location
	lanes     map[string]bool
	templates map[string]*quiet
}

func (q QuietHours) plan() (*quiet, error) {
	out, err := q.hours()
	if err != nil {
		return nil, fmt.Errorf("quiet_hours: %w", err)
	}
	if len(q.Templates) > 1000 {
		return nil, fmt.Errorf("quiet_hours.templates: %d are too many: use at most 1000", len(q.Templates))
	}
	for id, own := range q.Templates {
		if own.Zone == "" {
			own.Zone = q.Zone
		}
		if out.templates[id], err = own.hours(); err != nil {
			return nil, fmt.Errorf("quiet_hours.templates.%.40s: %w", id, err)
		}
	}
	return out, nil
}

func (q QuietSpan) hours() (*quiet, error) {
	out := &quiet{on: q.From != "" || q.To != "", lanes: map[string]bool{}, templates: map[string]*quiet{}}
	zone := q.Zone
	if zone == "" {
		zone = quietZone
	}
	var err error
	if out.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" {
		return nil, fmt.Errorf("zone %.40q: use a name such as Asia/Shanghai or UTC", zone)
	}
	lanes := q.Lanes
	if len(lanes) == 0 {
		lanes = []string{wire.LaneRealtime, wire.LaneBulk}
	}
	for _, l := range lanes {
		if l != wire.LaneRealtime && l != wire.LaneBulk {
			return nil, fmt.Errorf("lane %.20q: use realtime and bulk; replies have no quiet hours", l)
		}
		out.lanes[l] = true
	}
	if !out.on {
		return out, nil
	}
	for _, f := range []struct {
		name, text string
		into       *time.Duration
	}{{"from", q.From, &out.from}, {"to", q.To, &out.to}} {
		t, err := time.Parse("15:04", f.text)
		if err != nil {
			return nil, fmt.Errorf("%s is %.20q: use a time of day such as 22:00", f.name, f.text)
		}
		*f.into = time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	}
	if out.from == out.to {
		return nil, fmt.Errorf("from and to are both %s: use two times, or pause the account", q.From)
	}
	return out, nil
}

// until gives the end of the quiet hours that a moment lies in; the zero time if
// it lies in none. On days on which the clock is changed the hours are those that
// the clock shows.
func (q *quiet) until(now time.Time) time.Time {
	if q == nil || !q.on {
		return time.Time{}
	}
	local := now.In(q.zone)
	at := func(days int, of time.Duration) time.Time {
		y, m, d := local.Date()
		return time.Date(y, m, d+days, int(of/time.Hour), int(of%time.Hour/time.Minute), 0, 0, q.zone)
	}
	for days := -1; days <= 0; days++ {
		from, to := at(days, q.from), at(days, q.to)
		if q.to < q.from {
			to = at(days+1, q.to)
		}
		if !now.Before(from) && now.Before(to) {
			return to
		}
	}
	return time.Time{}
}

// setQuiet takes hours that Validate has passed.
func (st *station) setQuiet(q QuietHours) {
	if plan, err := q.plan(); err == nil {
		st.quiet.Store(plan)
	}
}

// quietUntil is the end of the quiet hours that hold for a push now.
func (st *station) quietUntil(template, lane string, now time.Time) time.Time {
	q := st.quiet.Load()
	if q == nil {
		return time.Time{}
	}
	if own := q.templates[template]; own != nil && template != "" {
		q = own
	}
	if !q.lanes[lane] {
		return time.Time{}
	}
	return q.until(now)
}
