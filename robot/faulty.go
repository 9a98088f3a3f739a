package robot

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidegate/pkg/alarm"
	"tidegate/pkg/kafka"
)

// The alarms of a robot that is faulty by its own judgement (D13). Both are
// conditions of this process alone.
const (
	// alarmStalled: it has left its partitions, because the work on some of them
	// shows no sign of life.
	alarmStalled = "robot_stalled"
	// alarmFrozen: it stood still as a whole, for about as long as its session.
	alarmFrozen = "robot_frozen"
)

// faulty keeps the subjects of a member's alarms, by name, until they are
// resolved.
type faulty struct {
	mu    sync.Mutex
	fired map[string]string
}

func (r *Robot) fire(m *member, a alarm.Alarm) {
	m.faulty.mu.Lock()
	defer m.faulty.mu.Unlock()
	if old, ok := m.faulty.fired[a.Name]; ok && old != a.Subject { // again, before it was back
		r.d.Alarms.Resolve(a.Name, old)
	}
	if m.faulty.fired == nil {
		m.faulty.fired = map[string]string{}
	}
	m.faulty.fired[a.Name] = a.Subject
	a.Local = true
	r.d.Alarms.Fire(a)
}

// recovered resolves what fires: the member is in its group again, or it runs
// no more.
func (r *Robot) recovered(m *member) {
	m.faulty.mu.Lock()
	defer m.faulty.mu.Unlock()
	for name, subject := range m.faulty.fired {
		r.d.Alarms.Resolve(name, subject)
	}
	clear(m.faulty.fired)
}

func (r *Robot) stalled(m *member, s kafka.Stall) {
	parts := make([]string, len(s.Partitions))
	for i, p := range s.Partitions {
		parts[i] = strconv.Itoa(int(p.Partition))
	}
	silent := s.Silent.Round(time.Second)
	r.fire(m, alarm.Alarm{
		Name: alarmStalled, Subject: fmt.Sprintf("%s %s callbacks/%s", r.d.Node, m.name, strings.Join(parts, ",")), Severity: alarm.Critical,
		Text: fmt.Sprintf("%d callbacks have been in hand for up to %s without a sign of life (stalled_after %s); the robot has left its partitions to the others and ends in %s unless they return: read its log and report a bug",
			s.Handlers, silent, r.cfg.StalledAfter, r.cfg.GiveUpAfter),
		TextZH: fmt.Sprintf("%d 条回调处理已长达 %s 无任何进展（stalled_after %s）；该机器人已把分区让给其他机器人，若 %s 内仍不返回，进程将退出：请查看其日志并报告缺陷",
			s.Handlers, silent, r.cfg.StalledAfter, r.cfg.GiveUpAfter),
	})
}

func (r *Robot) frozen(m *member, gap time.Duration) {
	gap = gap.Round(100 * time.Millisecond)
	r.fire(m, alarm.Alarm{
		Name: alarmFrozen, Subject: r.d.Node + " " + m.name, Severity: alarm.Warning,
		Text: fmt.Sprintf("the process stood still for %s, about as long as its session (%s), and has given its partitions up; it joins again: look for a stopped process, a frozen or swapping machine, or too little CPU",
			gap, r.cfg.SessionTimeout),
		TextZH: fmt.Sprintf("进程整体停顿了 %s，接近会话超时（%s），已放弃所负责的分区并重新加入：请检查进程是否被暂停、主机是否冻结或换页、CPU 是否不足",
			gap, r.cfg.SessionTimeout),
	})
}
