package queues

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// condition is one reason for an alarm about a partition. Texts come in pairs,
// English and Chinese.
type condition struct {
	name     string
	severity alarm.Severity
	holds    func(*partition) bool
	seen     func(*partition) pair
	todo     pair
	// implied: overload and faulty of the same queue say it already.
	implied bool
}

type pair struct{ en, zh string }

func pairf(en, zh string, args ...any) pair {
	return pair{fmt.Sprintf(en, args...), fmt.Sprintf(zh, args...)}
}

func waiting(p *partition) pair { return pairf("%d records wait", "%d 条记录等待处理", p.depth) }

func oldest(p *partition) pair {
	return pairf("the oldest record waits for %s", "最早的记录已等待 %s", short(p.age))
}

func conditions(l Limits) []condition {
	return []condition{
		{AlarmDepth, alarm.Warning, func(p *partition) bool { return p.deep.open }, waiting,
			pairf("more than warn_depth (%d): see 'tidegate queues' whether it drains", "超过 warn_depth（%d）；请用 tidegate queues 查看是否在减少", l.WarnDepth), true},
		{AlarmAge, alarm.Warning, func(p *partition) bool { return p.old.open }, oldest,
			pairf("longer than warn_age (%s): see 'tidegate queues' whether somebody works it", "超过 warn_age（%s）；请用 tidegate queues 查看是否有人处理", short(l.WarnAge)), true},
		{AlarmFaulty, alarm.Critical, func(p *partition) bool { return p.verdict == Faulty }, stuckText,
			pairf("more than max_depth (%d) and no progress: look at the process that holds it, or start one", "超过 max_depth（%d）且无进展；请检查持有该分区的进程，或启动新的进程", l.MaxDepth), false},
		{AlarmSlow, alarm.Warning, func(p *partition) bool { return p.verdict == Laggard }, waiting,
			pairf("more than max_depth (%d) while the others are below half of it: look at the process that holds it and at its busiest followers",
				"超过 max_depth（%d），而其他分区不到一半；请检查持有该分区的进程和其中最活跃的用户", l.MaxDepth), true},
		{AlarmRewind, alarm.Warning, func(p *partition) bool { return p.status == Rewind }, backText,
			pairf("records are worked a second time and recognised by their ids; find out who reset the offsets, or whether they had expired",
				"记录会被再次处理并按编号去重；请查明是谁重置了位点，或位点是否过期"), false},
		{AlarmSkipped, alarm.Critical, func(p *partition) bool { return p.skipped.open }, lostText,
			pairf("they are lost: raise retention.ms, and have the followers concerned told", "这些记录已丢失；请调大 retention.ms，并通知相关用户"), false},
		{AlarmRetention, alarm.Critical, func(p *partition) bool { return p.expiring.open }, oldest,
			pairf("more than half of the topic's retention: what gets older is deleted unread, so raise retention.ms and find out why nobody reads",
				"超过主题保留期的一半；再久将未读即被删除，请调大 retention.ms 并查明为何无人读取"), false},
	}
}

func stuckText(p *partition) pair {
	return pairf("%d records wait, status %s", "%d 条记录等待处理，状态 %s", p.depth, p.status)
}

func backText(p *partition) pair {
	return pairf("the position went back to %d", "消费位点回退到 %d", p.lag.Committed)
}

func lostText(p *partition) pair {
	return pairf("retention has deleted %d records that nobody had read", "保留期清理删除了 %d 条未读记录", p.lost)
}

// wanted lists the alarms that a queue deserves now: one for each condition,
// however many of its partitions it concerns. A robot that dies leaves several
// behind, and is one thing to look at; which they are is in the text, in
// /ops/v1/queues and in the metrics. What overload and faulty imply is not told
// beside them.
func (s *set) wanted() []alarm.Alarm {
	var out []alarm.Alarm
	if s.bench.overload.open {
		out = append(out, s.overloaded())
	}
	said := s.saysMore()
	for _, c := range conditions(s.limits) {
		if said && c.implied {
			continue
		}
		var hit []*partition
		for _, p := range s.partitions {
			if c.holds(p) {
				hit = append(hit, p)
			}
		}
		if len(hit) > 0 {
			out = append(out, c.ofQueue(s, hit))
		}
	}
	return out
}

// saysMore tells that an alarm fires which says why much waits, and waits long.
func (s *set) saysMore() bool {
	return s.bench.overload.open || slices.ContainsFunc(s.partitions, func(p *partition) bool { return p.verdict == Faulty })
}

func (c condition) of(subject string, seen pair) alarm.Alarm {
	return alarm.Alarm{Name: c.name, Subject: subject, Severity: c.severity,
		Text: subject + ": " + seen.en + "; " + c.todo.en, TextZH: subject + "：" + seen.zh + "；" + c.todo.zh}
}

func (c condition) ofQueue(s *set, hit []*partition) alarm.Alarm {
	worst := hit[0]
	for _, p := range hit {
		if p.depth > worst.depth {
			worst = p
		}
	}
	of := c.seen(worst)
	return c.of(s.queue.subject(), pair{
		fmt.Sprintf("%d of %d partitions (%s); at the deepest, %d, %s", len(hit), len(s.partitions), numbers(hit), worst.lag.Partition, of.en),
		fmt.Sprintf("%d 个分区中的 %d 个（%s）；最深的分区 %d：%s", len(s.partitions), len(hit), numbers(hit), worst.lag.Partition, of.zh),
	})
}

// numbers names a few partitions: "1, 3, 7", or "0, 1, 2, 3, 4, 5, …".
func numbers(ps []*partition) string {
	const few = 6
	var names []string
	for _, p := range ps[:min(len(ps), few)] {
		names = append(names, strconv.Itoa(int(p.lag.Partition)))
	}
	if len(ps) > few {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

func (s *set) overloaded() alarm.Alarm {
	exceed, stuck := 0, 0
	for _, p := range s.partitions {
		if p.over.open && !p.unseen {
			exceed++
			if p.status.stuck() {
				stuck++
			}
		}
	}
	why := pair{"more comes than is worked: raise the caps if the back ends can take it, add robots, or find out why the back ends are slow",
		"来量超过处理能力；若后端允许请调高上限，或增加机器人，或查明后端为何变慢"}
	switch {
	case exceed == 0:
		why = pair{"it becomes less: what waits is below the limit, and this ends once it stays there", "正在减少；积压稳定低于上限后告警将解除"}
	case stuck == exceed:
		why = pair{"none of them moves: start the processes that read it, or find out what they all wait for",
			"全部停滞；请启动读取它们的进程，或查明它们共同等待什么"}
	}
	c := condition{name: AlarmOverload, severity: alarm.Critical, todo: why}
	return c.of(s.queue.subject(), pairf("%d of %d partitions hold more than max_depth (%d)", "%d 个（共 %d 个）分区超过 max_depth（%d）",
		exceed, len(s.partitions), s.limits.MaxDepth))
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
