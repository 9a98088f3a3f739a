package wechatsim

import (
	"context"
	"time"
)

// receipt is the result event that a push will have.
type receipt struct {
	event, openid, template string
	msgID                   int64
	refused                 bool
}

func (r receipt) stimulus(status string) Stimulus {
	if r.event == EventSubscribeSent {
		if status != "success" {
			status = "system failed"
		}
		return subscribeSent(r.openid, r.template, r.msgID, status)
	}
	return templateFinish(r.openid, r.msgID, status)
}

// schedule plans the receipts of an accepted push by the fault script. The
// returned channel, if any, closes when a receipt that must come before the API
// answer has been delivered.
func (c *call) schedule() <-chan struct{} {
	if c.receipt == nil || c.sim.cfg.Receipts.Off {
		return nil
	}
	s, a, r := c.sim, c.acct, *c.receipt
	hit := s.faults.pick(receiptFaults, c.path, a.cfg.AppID, r.openid)
	status := "success"
	if r.refused {
		status = "failed:user block"
	}
	if f, ok := first(hit, ReceiptStatus); ok {
		status = f.Outcome
	}
	if _, ok := first(hit, ReceiptForeign); ok {
		foreign := r
		foreign.msgID = s.msgIDs.Add(1)
		s.receiptAfter(a, foreign.stimulus("success"), s.cfg.Receipts.Delay, nil)
	}
	if _, ok := first(hit, ReceiptNever); ok {
		s.journal.append(Entry{Kind: KindNote, Account: a.cfg.AppID, OpenID: r.openid, MsgID: r.msgID, What: "receipt withheld"})
		return nil
	}
	delay := s.cfg.Receipts.Delay
	if f, ok := first(hit, ReceiptLate); ok {
		delay = f.delay()
	}
	if _, ok := first(hit, ReceiptTwice); ok {
		s.receiptAfter(a, r.stimulus(status), delay, nil)
	}
	if _, ok := first(hit, ReceiptEarly); ok {
		done := make(chan struct{})
		s.receiptAfter(a, r.stimulus(status), 0, done)
		return done
	}
	s.receiptAfter(a, r.stimulus(status), delay, nil)
	return nil
}

// receiptAfter delivers a receipt after delay and closes done, if given.
func (s *Sim) receiptAfter(a *account, stim Stimulus, delay time.Duration, done chan struct{}) {
	if target, _ := a.target(); target == "" {
		if done != nil {
			close(done)
		}
		return
	}
	s.receiptsDue.Add(1)
	started := s.goWork(func() {
		if done != nil {
			defer close(done)
		}
		if pause(s.life, delay) == nil {
			s.deliverReceipt(s.life, a, stim)
		}
	})
	if !started && done != nil {
		close(done)
	}
}

// deliverReceipt makes the receipt a callback before it stops counting as due,
// so that Idle sees it as one or the other at every moment.
func (s *Sim) deliverReceipt(ctx context.Context, a *account, stim Stimulus) {
	cb, err := s.arise(a, stim)
	s.receiptsDue.Add(-1)
	if err != nil {
		s.journal.append(Entry{Kind: KindNote, Account: a.cfg.AppID, OpenID: stim.OpenID, What: "receipt dropped", Error: err.Error()})
		return
	}
	s.deliver(ctx, cb)
}
