package sender

import (
	"fmt"
	"time"

	"tidegate/pkg/alarm"
)

// The sender's alarms. Their subject is an account, or an account and an API.
const (
	alarmToken   = "token_trouble"
	alarmAccount = "account_stopped"
	alarmAPI     = "api_stopped"
	alarmQuota   = "quota_used"
	alarmTrouble = "wechat_trouble"
)

// untilTold is how many failures in a row, with their growing pauses about ten
// seconds, are trouble that a person should know of. Shorter trouble passes.
const untilTold = 4

// announce lets the brakes of an account raise and resolve its alarms: there the
// state changes.
func (s *Sender) announce(st *station) {
	st.eachBrake(func(api string, b *brake) {
		b.told = func(why cause, streak int, detail string) { s.closed(st.name, api, why, streak, detail) }
	})
}

// closed hears of each closing of an account (api is empty) or of one of its
// APIs, and of the opening.
func (s *Sender) closed(account, api string, why cause, streak int, detail string) {
	a := alarmOf(account, api, why, streak, detail)
	for _, name := range []string{alarmAccount, alarmAPI, alarmQuota, alarmTrouble} {
		if name != a.Name {
			s.alarms.Resolve(name, subjectOf(account, api))
		}
	}
	if a.Name != "" {
		s.alarms.Fire(a)
	}
}

// relieve resolves the alarms of APIs whose pause is over and for which no letter
// waits: without one nothing would ever end them. While the whole account is
// closed its letters do not get as far as the API. That alarm stays: a person has
// to change something, and only a letter shows whether it was done.
func (s *Sender) relieve(stations []*station, now time.Time) {
	for _, st := range stations {
		if why, _, _ := st.whole.state(); why != causeNone {
			continue
		}
		for _, r := range st.roads {
			r.own.idle(now)
		}
	}
}

func subjectOf(account, api string) string {
	if api == "" {
		return account
	}
	return account + " " + api
}

// alarmOf decides what to raise; an alarm without a name is none.
func alarmOf(account, api string, why cause, streak int, detail string) alarm.Alarm {
	a := alarm.Alarm{Subject: subjectOf(account, api), Severity: alarm.Critical}
	switch {
	case why == causeStop && api == "":
		a.Name = alarmAccount
		a.Text = fmt.Sprintf("WeChat refuses what account %s sends (%s); its messages wait and are tried again slowly", account, detail)
		a.TextZH = fmt.Sprintf("公众号 %s 的调用被微信拒绝（%s）；消息排队等待并缓慢重试，请检查 AppID、AppSecret、IP 白名单及公众平台通知", account, detail)
	case why == causeStop:
		a.Name = alarmAPI
		a.Text = fmt.Sprintf("WeChat refuses the API %s to account %s (%s); its messages wait", api, account, detail)
		a.TextZH = fmt.Sprintf("公众号 %s 没有接口 %s 的权限（%s）；消息排队等待，请在公众平台检查接口权限", account, api, detail)
	case why == causeQuota:
		a.Name = alarmQuota
		a.Text = fmt.Sprintf("account %s has used up the day's quota of %s; its messages wait until it is back, usually at midnight in Beijing", account, api)
		a.TextZH = fmt.Sprintf("公众号 %s 的接口 %s 当日额度已用完；消息等待额度恢复（通常为北京时间零点）", account, api)
	case why == causeTrouble && streak >= untilTold:
		a.Name, a.Severity = alarmTrouble, alarm.Warning
		a.Text = fmt.Sprintf("WeChat does not answer %s of account %s properly (%s), %d probes in a row; messages wait, one at a time probes", api, account, detail, streak)
		a.TextZH = fmt.Sprintf("微信接口 %s（公众号 %s）异常（%s），已连续探测 %d 次；消息等待，逐条探测恢复", api, account, detail, streak)
	}
	return a
}

// tokenTold hears how the keeper gets on.
func (s *Sender) tokenTold(account string, failures int, stop bool, why string) {
	switch {
	case failures == 0:
		s.alarms.Resolve(alarmToken, account)
	case stop || failures >= untilTold:
		s.alarms.Fire(alarm.Alarm{
			Name: alarmToken, Subject: account, Severity: alarm.Critical,
			Text:   fmt.Sprintf("account %s gets no access token (%s); its messages wait once the old one is over", account, why),
			TextZH: fmt.Sprintf("公众号 %s 无法获取 access_token（%s）；旧 token 失效后消息将等待", account, why),
		})
	}
}

// forget resolves the alarms of an account that was taken away.
func (s *Sender) forget(st *station) {
	s.alarms.Resolve(alarmToken, st.name)
	st.eachBrake(func(api string, b *brake) {
		b.mu.Lock()
		b.told = nil
		b.mu.Unlock()
		s.closed(st.name, api, causeNone, 0, "")
	})
}
