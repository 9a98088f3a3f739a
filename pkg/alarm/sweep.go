package alarm

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// settleTime is how long after its start a process waits before it believes
// that what it does not see is over: rooms need some checks, and the words of
// those that died have to lapse.
const settleTime = 2 * time.Minute

// markOf describes an alarm of this process.
func (h *Herald) markOf(t Transition) mark {
	return mark{
		Name: t.Name, Subject: t.Subject, Severity: t.Severity, Text: cut(t.Text, maxText), TextZH: cut(t.TextZH, maxText),
		Local: t.Local, Since: t.Since, Role: h.role, Host: h.host, Node: h.node,
	}
}

// remember leaves a mark, for the case that this process does not see the end.
func (h *Herald) remember(ctx context.Context, t Transition) {
	if h.once != nil && !h.away {
		h.noteAway(h.once.mark(ctx, h.markOf(t)))
	}
}

// forget takes the mark of an alarm away whose end is told.
func (h *Herald) forget(ctx context.Context, t Transition) {
	if h.once != nil && !h.away {
		_, err := h.once.take(ctx, h.markOf(t).field(), "")
		h.noteAway(err)
	}
}

// sweep tells, after the start, the end of what fired when processes of this
// role died and what nobody has seen since. It goes on for the life of a word:
// who sees an end while the word of a process that died still counts is silent.
// It ends when Redis has answered to all of it.
func (h *Herald) sweep(ctx context.Context) {
	since := h.now().Sub(h.begun)
	if h.once == nil || h.swept || h.away || since < h.settle {
		return
	}
	all, err := h.once.lapsed(ctx)
	for _, f := range all {
		if err != nil {
			break
		}
		if !h.judges(f.mark) {
			continue
		}
		var won bool
		if won, err = h.once.take(ctx, f.field, f.value); won {
			h.tellEnd(f.mark)
		}
	}
	h.noteAway(err)
	h.swept = err == nil && since >= h.settle+wordLife
}

// judges tells whether this process would see the condition if it held. Rooms of
// another role look at other things; a condition of a process is its own.
func (h *Herald) judges(m mark) bool {
	if m.Role != h.role || m.Local && m.Host != h.host {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.news[id{m.Name, m.Subject}] == nil
}

func (h *Herald) tellEnd(m mark) {
	node := h.node
	if m.Local {
		node = m.Node // whose it was
	}
	h.log.Info("alarm of an earlier process is over", zap.String("alarm", m.Name), zap.String("subject", m.Subject), zap.String("node", m.Node))
	a := Alarm{Name: m.Name, Subject: m.Subject, Severity: m.Severity, Text: m.Text, TextZH: m.TextZH, Local: m.Local}
	h.spread(Transition{Alarm: a, Since: m.Since, At: h.now()}, false, node)
}
