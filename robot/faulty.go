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

// alarmStalled is the alarm of a robot that has left its partitions because the
// work on them showed no sign of life (D13).
const alarmStalled = "robot_stalled"

// faulty keeps the subject of a member's alarm until it is resolved.
type faulty struct {
	mu      sync.Mutex
	subject string
}

// stalled raises the alarm of a member that leaves its group.
func (r *Robot) stalled(m *member, s kafka.Stall) {
	parts := make([]string, len(s.Partitions))
	for i, p := range s.Partitions {
		parts[i] = strconv.Itoa(int(p.Partition))
	}
	subject := fmt.Sprintf("%s %s callbacks/%s", r.d.Node, m.name, strings.Join(parts, ","))
	m.faulty.mu.Lock()
	defer m.faulty.mu.Unlock()
	if old := m.faulty.subject; old != "" { // it stalled again before it was back
		r.d.Alarms.Resolve(alarmStalled, old)
	}
	m.faulty.subject = subject
	r.d.Alarms.Fire(alarm.Alarm{
		Name: alarmStalled, Subject: subject, Severity: alarm.Critical,
		Text: fmt.Sprintf("%d callbacks have been in hand for up to %s without a sign of life, beyond stalled_after %s; the robot has left its partitions to the others and ends in %s unless they return: read its log, and report a bug",
			s.Handlers, s.Silent.Round(time.Second), r.cfg.StalledAfter, r.cfg.GiveUpAfter),
	})
}

// recovered resolves the alarm, if there is one: the member is in its group
// again, or it runs no more.
func (r *Robot) recovered(m *member) {
	m.faulty.mu.Lock()
	defer m.faulty.mu.Unlock()
	if m.faulty.subject == "" {
		return
	}
	r.d.Alarms.Resolve(alarmStalled, m.faulty.subject)
	m.faulty.subject = ""
}
