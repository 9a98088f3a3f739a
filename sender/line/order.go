package line

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"tidegate/pkg/alarm"
	"tidegate/pkg/wechat"
)

// Order implements wechat.Lines: what can be reached first, in the account's
// order, and an operator's choice before all of it.
func (f *Fleet) Order(account string) []*wechat.Line {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r := f.routes[account]
	if r == nil {
		r = f.routes[""]
	}
	chosen := f.chosen(account).Line
	var ranks [4][]*wechat.Line
	for _, w := range r.ways {
		if w.listed || w.of.Name == chosen {
			n := w.of.rank(chosen)
			ranks[n] = append(ranks[n], w.Line)
		}
	}
	out := make([]*wechat.Line, 0, len(r.ways))
	for _, lines := range ranks {
		out = append(out, lines...)
	}
	return out
}

// rank is the place of a line: the chosen one while it answers, then those that
// are up, then those that recover, then the rest.
func (s *state) rank(chosen string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch st := s.health.state(); {
	case s.Name == chosen && st != Down:
		return 0
	case st == Up:
		return 1
	case st == Recovering:
		return 2
	}
	return 3
}

// Told implements wechat.Lines.
func (f *Fleet) Told(l *wechat.Line, came wechat.Came, why error) {
	s := f.find(l.Name)
	if s == nil {
		return
	}
	f.met.requests.WithLabelValues(s.Name, words[came]).Inc()
	s.mu.Lock()
	s.counts[came]++
	s.mu.Unlock()
	switch came {
	case wechat.Answered:
		f.answered(s)
	case wechat.Unreached:
		f.unreached(s, why)
	case wechat.Lost:
		s.look() // perhaps WeChat is slow, perhaps the line is dead
	}
}

// words are the results in metrics.
var words = [...]string{wechat.Unreached: "unreached", wechat.Lost: "lost", wechat.Answered: "answered"}

// look asks for a look at the line as soon as possible.
func (s *state) look() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

func (f *Fleet) answered(s *state) {
	s.mu.Lock()
	was := s.health.state()
	back := s.health.answered(f.now())
	is := s.health.state()
	s.mu.Unlock()
	if is != was {
		f.met.show(s.Name, is)
		f.alarms.Resolve(alarmNoLine, allLines)
	}
	if back {
		f.log.Info("the line can be used again", zap.String("line", s.Name))
		f.alarms.Resolve(alarmLine, s.Name)
	}
}

func (f *Fleet) unreached(s *state, why error) {
	if errors.Is(why, context.Canceled) {
		return // we left, not the line
	}
	text := "no connection"
	if why != nil {
		text = why.Error()
	}
	s.mu.Lock()
	left := s.health.unreached(f.now(), text)
	s.mu.Unlock()
	f.met.show(s.Name, Down)
	if !left {
		return
	}
	f.met.left.WithLabelValues(s.Name).Inc()
	f.log.Warn("the line cannot be reached; calls go by the next one", zap.String("line", s.Name), zap.String("why", text), zap.Duration("hold", f.health.Hold))
	f.dropIdle(s)
	f.alarms.Fire(alarm.Alarm{
		Name: alarmLine, Subject: s.Name, Severity: alarm.Warning, Local: true,
		Text:   fmt.Sprintf("line %s to WeChat cannot be reached (%s); calls go by the account's next line until it has answered for %s", s.Name, text, f.health.Hold),
		TextZH: fmt.Sprintf("到微信的线路 %s 不可用（%s）；请求已切换到下一条线路，恢复并持续 %s 后自动切回", s.Name, text, f.health.Hold),
	})
	if f.nothingLeft() {
		f.alarms.Fire(alarm.Alarm{
			Name: alarmNoLine, Subject: allLines, Severity: alarm.Critical, Local: true,
			Text:   "no line to WeChat can be reached; messages wait in the queue. Check the way out, DNS and proxies, then 'tidegate lines list'",
			TextZH: "所有到微信的线路均不可用；消息在队列中等待。请检查出口网络、DNS 与代理，然后执行 tidegate lines list",
		})
	}
}

// dropIdle ends connections on a line that was left: what hangs on them would
// hang until its time-out (pitfall 46).
func (f *Fleet) dropIdle(s *state) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, r := range f.routes {
		for _, w := range r.ways {
			if w.of == s {
				w.CloseIdle()
			}
		}
	}
}

func (f *Fleet) nothingLeft() bool {
	for _, s := range f.lines {
		s.mu.Lock()
		st := s.health.state()
		s.mu.Unlock()
		if st != Down {
			return false
		}
	}
	return true
}

// The alarms. A line's subject is its name.
const (
	alarmLine   = "line_down"
	alarmNoLine = "no_line"
	allLines    = "wechat"
)
