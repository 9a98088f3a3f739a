package queues

import (
	"fmt"
	"time"

	"tidegate/pkg/alarm"
)

// Names of the alarms.
const (
	AlarmDepth     = "queue_depth"
	AlarmAge       = "queue_age"
	AlarmFaulty    = "queue_faulty"
	AlarmSlow      = "queue_slow"
	AlarmOverload  = "queue_overload"
	AlarmRewind    = "queue_rewind"
	AlarmSkipped   = "queue_skipped"
	AlarmRetention = "queue_retention"
)

// condition is one reason for an alarm about a partition.
type condition struct {
	name     string
	severity alarm.Severity
	holds    func(*partition) bool
	text     func(*partition) string // of one partition
	todo     string
}

func conditions(l Limits) []condition {
	depth := func(p *partition) string { return fmt.Sprintf("%d records wait", p.depth) }
	aged := func(p *partition) string { return fmt.Sprintf("the oldest record waits for %s", short(p.age)) }
	return []condition{
		{AlarmDepth, alarm.Warning, func(p *partition) bool { return p.deep.open }, depth,
			fmt.Sprintf("more than warn_depth (%d): see 'tidegate queues' whether it drains", l.WarnDepth)},
		{AlarmAge, alarm.Warning, func(p *partition) bool { return p.old.open }, aged,
			fmt.Sprintf("longer than warn_age (%s): see 'tidegate queues' whether somebody works it", short(l.WarnAge))},
		{AlarmFaulty, alarm.Critical, func(p *partition) bool { return p.verdict == Faulty },
			func(p *partition) string { return fmt.Sprintf("%d records wait, status %s", p.depth, p.status) },
			fmt.Sprintf("more than max_depth (%d) and no progress: look at the process that holds it, or start one", l.MaxDepth)},
		{AlarmSlow, alarm.Warning, func(p *partition) bool { return p.verdict == Laggard }, depth,
			fmt.Sprintf("more than max_depth (%d) while the others are below half of it: look at the process that holds it and at its busiest followers", l.MaxDepth)},
		{AlarmRewind, alarm.Warning, func(p *partition) bool { return p.status == Rewind },
			func(p *partition) string { return fmt.Sprintf("the position went back to %d", p.lag.Committed) },
			"records are worked a second time and recognised by their ids; find out who reset the offsets, or whether they had expired"},
		{AlarmSkipped, alarm.Critical, func(p *partition) bool { return p.skipped.open },
			func(p *partition) string {
				return fmt.Sprintf("retention has deleted %d records that nobody had read", p.lag.Skipped)
			},
			"they are lost: raise retention.ms, and have the followers concerned told"},
		{AlarmRetention, alarm.Critical, func(p *partition) bool { return p.expiring.open }, aged,
			"more than half of the topic's retention: what gets older is deleted unread, so raise retention.ms and find out why nobody reads"},
	}
}

// wanted lists the alarms that a queue deserves now, and notes in merged which
// conditions have spread: from more than half of the partitions on it is one
// alarm for the queue, and stays one until the last partition is well.
func (s *set) wanted() []alarm.Alarm {
	var out []alarm.Alarm
	if s.bench.overload.open {
		out = append(out, s.overloaded())
	}
	for _, c := range conditions(s.limits) {
		var hit []*partition
		for _, p := range s.partitions {
			if c.holds(p) {
				hit = append(hit, p)
			}
		}
		many := len(s.partitions) > 1 && 2*len(hit) > len(s.partitions)
		s.merged[c.name] = len(hit) > 0 && (many || s.merged[c.name])
		if s.merged[c.name] {
			out = append(out, c.ofQueue(s, hit))
			continue
		}
		for _, p := range hit {
			out = append(out, c.of(s.queue.subject(p.lag.Partition), c.text(p)))
		}
	}
	return out
}

func (c condition) of(subject, seen string) alarm.Alarm {
	return alarm.Alarm{Name: c.name, Subject: subject, Severity: c.severity, Text: subject + ": " + seen + "; " + c.todo}
}

func (c condition) ofQueue(s *set, hit []*partition) alarm.Alarm {
	worst := hit[0]
	for _, p := range hit {
		if p.depth > worst.depth {
			worst = p
		}
	}
	seen := fmt.Sprintf("%d of %d partitions; at the deepest, %d, %s", len(hit), len(s.partitions), worst.lag.Partition, c.text(worst))
	return c.of(s.queue.subject(-1), seen)
}

func (s *set) overloaded() alarm.Alarm {
	exceed, stuck := 0, 0
	for _, p := range s.partitions {
		if p.over.open {
			exceed++
			if p.status.stuck() {
				stuck++
			}
		}
	}
	subject := s.queue.subject(-1)
	why := "more comes than is worked: raise the caps if the back ends can take it, add robots, or find out why the back ends are slow"
	if stuck == exceed {
		why = "none of them moves: start the processes that read it, or find out what they all wait for"
	}
	return alarm.Alarm{Name: AlarmOverload, Subject: subject, Severity: alarm.Critical, Text: fmt.Sprintf(
		"%s: %d of %d partitions hold more than max_depth (%d); %s", subject, exceed, len(s.partitions), s.limits.MaxDepth, why)}
}

type alarmID struct{ name, subject string }

// tell brings the board to what is wanted; fired is what this watch has on it.
func tell(board *alarm.Board, fired map[alarmID]bool, wanted []alarm.Alarm) map[alarmID]bool {
	now := make(map[alarmID]bool, len(wanted))
	for _, a := range wanted {
		now[alarmID{a.Name, a.Subject}] = true
		board.Fire(a)
	}
	for id := range fired {
		if !now[id] {
			board.Resolve(id.name, id.subject)
		}
	}
	return now
}

// short prints a duration for people: 1m20s, not 1m20.000317s.
func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
