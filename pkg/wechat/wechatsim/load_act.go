package wechatsim

import "time"

// planned is one act of a load with its dice thrown.
type planned struct {
	stim              Stimulus
	again             bool // press again after the ack
	parallel, loseAck bool
}

// plan makes the next act of user. It runs in one goroutine, so a seed gives the
// same sequence of acts.
func (l *loadRun) plan(user string) planned {
	m, spec, mark := l.spec.Mix, l.spec, l.sim.Mark()
	p := planned{
		parallel: l.dice.Float64() < spec.ParallelShare,
		loseAck:  l.dice.Float64() < spec.LoseAckShare,
	}
	again := l.dice.Float64() < spec.RepeatShare
	n := l.dice.IntN(m.Text + m.Menu + m.Scan + m.Subscribe)
	switch {
	case n < m.Text:
		p.stim = Text(user, spec.Text+" "+mark)
	case n < m.Text+m.Menu:
		p.stim, p.again = Menu(user, spec.MenuKey+"_"+mark), again
	case n < m.Text+m.Menu+m.Scan:
		p.stim = Scan(user, spec.Scene+"_"+mark)
	default:
		p.stim = Subscribe(l.acct.newcomer(l.sim.clock.Now()), spec.Scene+"_"+mark)
	}
	p.stim.Token, p.stim.Wants = mark, spec.Wants
	return p
}

// newcomer makes one more follower, or takes the last one when the account is full.
func (a *account) newcomer(now time.Time) string {
	made, err := a.addFollowers(1, now)
	if err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.order[len(a.order)-1]
	}
	return made[0]
}

// act delivers one planned act and, for an impatient user, its repeat.
func (l *loadRun) act(p planned) {
	first := l.deliver(p)
	if !p.again || first == 0 {
		return
	}
	if pause(l.sim.life, l.spec.RepeatAfter) != nil {
		return
	}
	p.stim.RepeatOf = first
	l.repeats.Add(1)
	l.deliver(p)
}

// deliver returns the callback's number, or 0 when it could not be made.
func (l *loadRun) deliver(p planned) uint64 {
	cb, err := l.sim.arise(l.acct, p.stim)
	if err != nil {
		l.skipped.Add(1)
		return 0
	}
	cb.parallel, cb.loseAck = p.parallel, p.loseAck
	l.offered.Add(1)
	if d := l.sim.deliver(l.sim.life, cb); d.Acked {
		l.acked.Add(1)
	} else if l.sim.life.Err() == nil {
		l.refused.Add(1)
	}
	return cb.id
}
