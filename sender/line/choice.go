package line

import (
	"time"

	"go.uber.org/zap"
)

// Choice is an operator's: this line first.
type Choice struct {
	Line   string
	By     string
	Reason string
	At     time.Time
	Until  time.Time // zero: until it is taken back
}

// Choose replaces all choices, by account; "" is for every account that has none
// of its own. One that names no line of ours changes nothing for its account: the
// lines of another node's configuration may be others.
func (f *Fleet) Choose(choices map[string]Choice) {
	f.mu.Lock()
	was := f.choices
	f.choices = make(map[string]Choice, len(choices))
	for account, c := range choices {
		if f.find(c.Line) == nil {
			f.log.Warn("an operator's choice names a line that this node does not have; its own order stays", zap.String("account", account), zap.String("line", c.Line))
			continue
		}
		f.choices[account] = c
	}
	now := f.choices
	f.mu.Unlock()
	for account, c := range now {
		if was[account].Line != c.Line {
			f.log.Info("line chosen by hand", zap.String("account", account), zap.String("line", c.Line), zap.String("by", c.By))
		}
	}
	for account, c := range was {
		if _, stays := now[account]; !stays {
			f.log.Info("the choice of a line by hand has ended", zap.String("account", account), zap.String("line", c.Line))
		}
	}
}

// chosen is called with mu held.
func (f *Fleet) chosen(account string) Choice {
	if c, ok := f.choices[account]; ok {
		return c
	}
	return f.choices[""]
}
