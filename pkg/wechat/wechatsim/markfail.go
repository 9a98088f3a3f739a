package wechatsim

import (
	"context"
	"time"
)

// gate tells whether a try may be sent now. While an account is paused a try is
// skipped for good or, if so configured, held until the pause ends.
func (s *Sim) gate(ctx context.Context, cb *callback) bool {
	for {
		left := cb.acct.paused(s.clock.Now())
		if left <= 0 {
			return ctx.Err() == nil
		}
		if !s.cfg.MarkFail.SendLater {
			s.journal.append(Entry{Kind: KindDelivery, Account: cb.acct.cfg.AppID, OpenID: cb.stim.OpenID,
				What: cb.stim.what(), Stimulus: cb.id, Judged: JudgedSkipped, Error: "WeChat pauses this account"})
			return false
		}
		// In short steps, because the clock may be moved meanwhile.
		if pause(ctx, min(left, 250*time.Millisecond)) != nil {
			return false
		}
	}
}

// failed counts failures in a row and starts the pause.
func (s *Sim) failed(a *account, bad bool) {
	m := s.cfg.MarkFail
	if a.fail(bad, m, s.clock.Now()) {
		s.journal.append(Entry{Kind: KindNote, Account: a.cfg.AppID, What: "MarkFail: pushes pause for " + m.Pause.String()})
	}
}

func (a *account) fail(bad bool, m MarkFail, now time.Time) (starts bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !bad {
		a.failures = 0
		return false
	}
	a.failures++
	if m.Failures == 0 || a.failures < m.Failures || now.Before(a.pausedTil) {
		return false
	}
	a.failures = 0
	a.pausedTil = now.Add(m.Pause)
	return true
}

func (a *account) paused(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pausedTil.Sub(now)
}

// target is where callbacks go and how they are sealed.
func (a *account) target() (string, sealer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.url, a.seal
}
