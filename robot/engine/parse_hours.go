package engine

import (
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Limits of the hours section.
const (
	maxCalendars = 100
	maxDates     = 2000 // days in one list of holidays or workdays
	defaultZone  = "Asia/Shanghai"
)

var (
	timeSpan = regexp.MustCompile(`^(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})$`)
	weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// hours reads the calendars of the file.
func (r *reader) hours(n *yaml.Node) map[string]*calendar {
	out := map[string]*calendar{}
	if n == nil {
		return out
	}
	pairs := r.pairs(n, "hours")
	if len(pairs) > maxCalendars {
		r.fail(n, "hours: %d calendars, at most %d are taken", len(pairs), maxCalendars)
		return out
	}
	for _, p := range pairs {
		if !ruleName.MatchString(p.key.Value) {
			r.fail(p.key, "hours: name %q: use up to 64 letters, digits, _, - and .", cut(p.key.Value, 64))
			continue
		}
		out[p.key.Value] = r.calendar(p.value, p.key.Value)
	}
	return out
}

func (r *reader) calendar(n *yaml.Node, name string) *calendar {
	of := "hours: " + name
	f := r.mapping(n, of, "zone", "week", "holidays", "workdays")
	c := &calendar{name: name, zone: r.zone(f["zone"], of+": zone")}
	if f["week"] == nil {
		r.fail(n, "%s: week is missing: write it like {mon-fri: \"09:00-18:00\", sat: \"10:00-16:00\"}", of)
		return c
	}
	for _, p := range r.pairs(f["week"], of+": week") {
		days := r.weekdays(p.key, of+": week")
		spans := r.spans(p.value, of+": week: "+cut(p.key.Value, 64))
		for _, d := range days {
			if c.week[d] != nil {
				r.fail(p.key, "%s: week: %s is there twice", of, weekdays[d])
			}
			c.week[d] = spans
		}
	}
	c.holidays = r.dates(f["holidays"], of+": holidays")
	c.workdays = r.dates(f["workdays"], of+": workdays")
	if len(c.workdays) > 0 && len(c.week[time.Monday]) == 0 {
		r.fail(f["workdays"], "%s: workdays have Monday's hours, and Monday has none: give mon hours in week", of)
	}
	return c
}

func (r *reader) zone(n *yaml.Node, subject string) *time.Location {
	name := defaultZone
	if n != nil {
		name, _ = r.text(n, subject)
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		r.fail(n, "%s: %q is no time zone: write Asia/Shanghai, Europe/London, UTC and the like", subject, cut(name, 64))
		return time.UTC
	}
	return zone
}

// weekdays reads mon, mon-fri, or sat-mon over the end of the week.
func (r *reader) weekdays(n *yaml.Node, subject string) []time.Weekday {
	from, to, ranged := strings.Cut(strings.ToLower(n.Value), "-")
	a, b := weekday(from), weekday(from)
	if ranged {
		b = weekday(to)
	}
	if a < 0 || b < 0 {
		r.fail(n, "%s: %q is no day: write mon, tue, wed, thu, fri, sat, sun or a range such as mon-fri", subject, cut(n.Value, 64))
		return nil
	}
	days := []time.Weekday{time.Weekday(a)}
	for a != b {
		a = (a + 1) % 7
		days = append(days, time.Weekday(a))
	}
	return days
}

func weekday(name string) int {
	for i, d := range weekdays {
		if strings.TrimSpace(name) == d {
			return i
		}
	}
	return -1
}

// spans reads "09:00-12:00, 13:30-18:00" or "closed".
func (r *reader) spans(n *yaml.Node, subject string) []span {
	s, ok := r.text(n, subject)
	if !ok || s == "closed" {
		return nil
	}
	var out []span
	for _, part := range strings.Split(s, ",") {
		m := timeSpan.FindStringSubmatch(strings.TrimSpace(part))
		var t [4]int
		for i := range t {
			if m != nil {
				t[i], _ = strconv.Atoi(m[i+1]) // two digits at most
			}
		}
		one := span{t[0]*60 + t[1], t[2]*60 + t[3]}
		if m == nil || t[1] > 59 || t[3] > 59 || one.from >= dayMinutes || one.to > dayMinutes || one.from == one.to {
			r.fail(n, "%s: %q: write times like \"09:00-12:00, 13:30-18:00\", \"22:00-02:00\" over midnight, \"00:00-24:00\" or closed", subject, cut(part, 64))
			return nil
		}
		if one.to < one.from {
			one.to += dayMinutes
		}
		out = append(out, one)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].from < out[j].from })
	for i := 1; i < len(out); i++ {
		if out[i].from < out[i-1].to {
			r.fail(n, "%s: the times overlap: write each once", subject)
		}
	}
	return out
}

// dates reads days and ranges of them: [2026-10-01..2026-10-07, 2027-01-01].
func (r *reader) dates(n *yaml.Node, subject string) map[day]bool {
	if n == nil {
		return nil
	}
	out := map[day]bool{}
	for _, s := range r.texts(n, subject) {
		first, last, ranged := strings.Cut(s, "..")
		if !ranged {
			last = first
		}
		a, err1 := time.Parse(time.DateOnly, strings.TrimSpace(first))
		b, err2 := time.Parse(time.DateOnly, strings.TrimSpace(last))
		if err1 != nil || err2 != nil || b.Before(a) || int(b.Sub(a).Hours()/24)+len(out) >= maxDates {
			r.fail(n, "%s: %q: write days like 2026-10-01 or 2026-10-01..2026-10-07, at most %d in all", subject, cut(s, 64), maxDates)
			continue
		}
		for ; !a.After(b); a = a.AddDate(0, 0, 1) {
			out[dayOf(a)] = true
		}
	}
	return out
}

// during reads the calendars in whose hours a rule holds.
func (r *reader) during(n *yaml.Node, u *rule, of string, _ Known) {
	u.during = r.calendarsOf(n, of+"during")
}

// outside reads the calendars outside of whose hours a rule holds.
func (r *reader) outside(n *yaml.Node, u *rule, of string, _ Known) {
	u.outside = r.calendarsOf(n, of+"outside")
}

func (r *reader) calendarsOf(n *yaml.Node, subject string) []*calendar {
	var out []*calendar
	for _, name := range r.texts(n, subject) {
		c := r.calendars[name]
		if c == nil {
			r.fail(n, "%s: there are no hours %q: describe them in the section hours", subject, cut(name, 64))
			continue
		}
		out = append(out, c)
	}
	return out
}
