package ratelimit

import (
	"container/list"
	"sync"
	"time"

	"tidegate/pkg/slice"
)

// maxSLAWindows bounds what a node counts alone. Beyond it the window that was not
// used for longest is forgotten; those of developers and apps are used by every
// call.
const maxSLAWindows = 10_000

// slaLocal holds a node's own counts while Redis is away.
type slaLocal struct {
	mu      sync.Mutex
	windows map[string]*list.Element
	order   *list.List // of *slaWindow, the latest first
}

type slaWindow struct {
	name string
	rule slice.Rule
	w    *slice.Window
}

func newSLALocal() *slaLocal {
	return &slaLocal{windows: map[string]*list.Element{}, order: list.New()}
}

// take is all or nothing, as the script is; each limit is divided by the nodes.
func (l *slaLocal) take(now time.Time, developer string, ladder []rung, cost, nodes int64) SLAVerdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	used, windows := make([]int64, len(ladder)), make([]*slice.Window, len(ladder))
	shares := make([]rung, len(ladder))
	refused := -1
	for i, r := range ladder {
		shares[i] = r
		shares[i].rule.Limit = r.rule.Limit / nodes
		windows[i] = l.window(developer+" "+r.name, r.rule)
		used[i] = windows[i].Sum(now)
		if refused < 0 && r.rule.Limit > 0 && used[i]+cost > shares[i].rule.Limit {
			refused = i
		}
	}
	if refused >= 0 {
		wait := ladder[refused].rule.Period / time.Duration(ladder[refused].rule.Slices)
		return judged(shares, false, refused, used, wait)
	}
	for i, w := range windows {
		used[i] = w.Add(now, cost)
	}
	return judged(shares, true, -1, used, 0)
}

func (l *slaLocal) window(name string, r slice.Rule) *slice.Window {
	if e := l.windows[name]; e != nil {
		l.order.MoveToFront(e)
		if s, _ := e.Value.(*slaWindow); s.rule == r {
			return s.w
		}
		l.drop(e)
	}
	s := &slaWindow{name: name, rule: r, w: slice.NewWindow(r)}
	l.windows[name] = l.order.PushFront(s)
	if l.order.Len() > maxSLAWindows {
		l.drop(l.order.Back())
	}
	return s.w
}

func (l *slaLocal) drop(e *list.Element) {
	if s, ok := l.order.Remove(e).(*slaWindow); ok {
		delete(l.windows, s.name)
	}
}
