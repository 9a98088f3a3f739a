package wechatsim

import "time"

// restore brings windows and followers of a kept journal back, so that replies
// to what was acked before a restart are still allowed.
func (s *Sim) restore(e Entry) {
	a := s.account(e.Account)
	if a == nil {
		return
	}
	at := time.UnixMilli(e.Wall)
	switch e.Kind {
	case KindStimulus:
		s.callbacks.Store(max(s.callbacks.Load(), e.Stimulus))
		stim := Stimulus{OpenID: e.OpenID, Type: e.What}
		if e.MsgType == "event" {
			stim.Event = e.What
		}
		a.ensure(e.OpenID, at)
		a.act(stim, at)
	case KindArrival:
		s.msgIDs.Store(max(s.msgIDs.Load(), e.MsgID))
		a.restoreSend(e, at)
	case KindDelivery, KindSettled, KindExpect, KindNote:
	}
}

// ensure makes openid a follower if it is unknown.
func (a *account) ensure(openid string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.followers[openid] == nil {
		a.join(openid, now)
	}
}

// restoreSend repeats what an applied send changed: it used up a message of the
// window, or made a client_msg_id known.
func (a *account) restoreSend(e Entry, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.followers[e.OpenID]
	switch {
	case f == nil || !e.Applied:
	case e.What == PathCustomSend:
		f.windows.use(at)
	case e.Visible && e.ClientMsgID != "":
		key := e.OpenID + "\x00" + e.ClientMsgID
		a.sent[key] = sentOnce{msgID: e.MsgID, at: at}
		a.sentOrder = append(a.sentOrder, key)
	}
}
