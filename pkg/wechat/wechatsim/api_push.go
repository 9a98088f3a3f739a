package wechatsim

import "time"

// pushRequest is a template or subscription message.
type pushRequest struct {
	ToUser      string `json:"touser"`
	TemplateID  string `json:"template_id"`
	URL         string `json:"url"`
	ClientMsgID string `json:"client_msg_id"`
	MiniProgram *struct {
		AppID    string `json:"appid"`
		PagePath string `json:"pagepath"`
	} `json:"miniprogram"`
	Data map[string]struct {
		Value string `json:"value"`
	} `json:"data"`
}

// sentOnce is what is remembered of one openid + client_msg_id.
type sentOnce struct {
	msgID int64
	at    time.Time
}

// templateBody is the answer of template/send.
type templateBody struct {
	Errcode int    `json:"errcode"`
	Errmsg  string `json:"errmsg"`
	MsgID   int64  `json:"msgid"`
}

func templateSend(c *call) (any, *apiError) {
	var q pushRequest
	if err := c.decode(&q); err != nil {
		return nil, err
	}
	msgID, err := c.push(&q, "template", EventTemplateFinish)
	if err != nil {
		return nil, err
	}
	return templateBody{0, "ok", msgID}, nil
}

func bizSend(c *call) (any, *apiError) {
	var q pushRequest
	if err := c.decode(&q); err != nil {
		return nil, err
	}
	msgID, err := c.push(&q, "subscribe", EventSubscribeSent)
	switch {
	case err != nil:
		return nil, err
	case c.sim.cfg.Open.BizSendMsgID:
		return templateBody{0, "ok", msgID}, nil
	}
	return ok, nil
}

// push accepts one message: check, find a repeat, send, plan the receipt.
func (c *call) push(q *pushRequest, kind, event string) (int64, *apiError) {
	a := c.acct
	if err := q.check(a.cfg.Templates, kind); err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.followers[q.ToUser]
	switch {
	case f == nil:
		return 0, refusal(errInvalidOpenID)
	case !f.subscribed:
		return 0, refusal(errRequireSubscribe)
	}
	key := q.ToUser + "\x00" + q.ClientMsgID
	if q.ClientMsgID != "" {
		a.forgetSent(c.now)
		if once, repeated := a.sent[key]; repeated {
			return c.repeated(once)
		}
	}
	if event == EventSubscribeSent {
		if err := a.takeCredit(f, q.TemplateID); err != nil {
			return 0, err
		}
	}
	once := sentOnce{msgID: c.sim.msgIDs.Add(1), at: c.now}
	if q.ClientMsgID != "" {
		a.sent[key] = once
		a.sentOrder = append(a.sentOrder, key)
	}
	c.entry.Applied, c.entry.Visible, c.entry.MsgID = true, true, once.msgID
	c.receipt = &receipt{event: event, openid: q.ToUser, template: q.TemplateID, msgID: once.msgID, refused: f.refuses}
	return once.msgID, nil
}

// repeated answers a known client_msg_id: the user sees nothing new and no
// second receipt comes.
func (c *call) repeated(once sentOnce) (int64, *apiError) {
	c.entry.Applied = true
	switch c.sim.cfg.Open.RepeatedClientMsgID {
	case RepeatError:
		c.entry.Applied = false
		return 0, refusal(c.sim.cfg.Open.RepeatedErrcode)
	case RepeatNewMsgID:
		once.msgID = c.sim.msgIDs.Add(1)
	}
	c.entry.MsgID = once.msgID
	return once.msgID, nil
}

// forgetSent drops what is older than the memory of client_msg_id. The caller
// holds the lock.
func (a *account) forgetSent(now time.Time) {
	n := 0
	for _, key := range a.sentOrder {
		if now.Sub(a.sent[key].at) < a.limits.ClientMsgIDLife {
			break
		}
		delete(a.sent, key)
		n++
	}
	a.sentOrder = a.sentOrder[n:]
}

// takeCredit spends one agreed subscription message. The caller holds the lock.
func (a *account) takeCredit(f *follower, template string) *apiError {
	left, set := f.credits[template]
	if !set {
		left = a.limits.SubscriptionCredits
	}
	if left < 0 {
		return nil
	}
	if left == 0 {
		return refusal(errSubscriptionGone)
	}
	if f.credits == nil {
		f.credits = map[string]int{}
	}
	f.credits[template] = left - 1
	return nil
}
