package robot

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"tidegate/pkg/alarm"
	"tidegate/robot/engine"
)

// alarmShedding says that an account has been refusing callbacks for a while.
const alarmShedding = "robot_shedding"

const (
	sheddingPoll = time.Second
	// calm is how long an account must refuse nothing until its overload is over.
	// Lines fill and empty within seconds; an alarm must not follow them.
	calm = 30 * time.Second
)

// shedding is one account's present overload.
type shedding struct {
	mu          sync.Mutex
	first, last time.Time
	refused     perLevel // since first
}

func (s *shedding) note(l engine.Level, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first.IsZero() {
		s.first = now
	}
	s.last = now
	s.refused[l]++
}

// look gives how long it has lasted, 0 if there is none, and what was refused.
func (s *shedding) look(now time.Time) (lasted time.Duration, refused perLevel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first.IsZero() || now.Sub(s.last) >= calm {
		s.first, s.refused = time.Time{}, perLevel{}
		return 0, refused
	}
	return s.last.Sub(s.first), s.refused
}

// watchShedding tells of overload that lasts, until ctx ends.
func (r *Robot) watchShedding(ctx context.Context) {
	tick := time.NewTicker(sheddingPoll)
	defer tick.Stop()
	told := map[string]bool{}
	defer func() {
		for account := range told { // what has ended refuses nothing
			r.d.Alarms.Resolve(alarmShedding, account)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.tellShedding(told, now)
		}
	}
}

func (r *Robot) tellShedding(told map[string]bool, now time.Time) {
	lasting := map[string]bool{}
	for account, s := range r.sheddings() {
		lasted, refused := s.look(now)
		if lasted < r.cfg.Overload.AlarmAfter {
			continue
		}
		lasting[account], told[account] = true, true
		r.d.Alarms.Fire(alarm.Alarm{
			Name: alarmShedding, Subject: account, Severity: severityOf(refused),
			Text: fmt.Sprintf("more callbacks come than the account or a back end takes: refused for %s here, by level: %s; raise caps that the back ends can take, add capacity, or stop the campaign",
				lasted.Round(time.Second), counts(refused)),
			TextZH: fmt.Sprintf("回调量超过账号或后端系统的处理能力：本节点已持续拒绝 %s，按级别：%s；请在后端可承受范围内提高上限、扩容，或暂停营销活动",
				lasted.Round(time.Second), counts(refused)),
		})
	}
	for account := range told {
		if !lasting[account] {
			delete(told, account)
			r.d.Alarms.Resolve(alarmShedding, account)
		}
	}
}

func (r *Robot) sheddings() map[string]*shedding {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]*shedding, len(r.members))
	for name, m := range r.members {
		out[name] = m.shedding
	}
	return out
}

// severityOf: refused questions are noticed by users who need something.
func severityOf(refused perLevel) alarm.Severity {
	if refused[engine.Vital]+refused[engine.Query] > 0 {
		return alarm.Critical
	}
	return alarm.Warning
}

func counts(refused perLevel) string {
	var parts []string
	for i, n := range refused {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", engine.Level(i), n))
		}
	}
	return strings.Join(parts, ", ")
}
