package token

import (
	"errors"
	"time"

	"tidegate/pkg/wechat"
)

// Least pauses after refusals that name their own time (wechat.md 4.1). WeChat
// blocks an address for an hour or a day; it is asked within that time as
// well, because an administrator may lift the block, but seldom.
const (
	blockedHour = 10 * time.Minute
	blockedDay  = time.Hour
	slowDown    = time.Minute
)

// JudgeWeChat is the Judge for errors of pkg/wechat's client.
func JudgeWeChat(err error) Verdict {
	var e *wechat.APIError
	if !errors.As(err, &e) || e.Code == 0 {
		return Verdict{}
	}
	v := Verdict{Code: e.Code}
	switch e.Action() {
	case wechat.ActionRetry:
	case wechat.ActionSlow:
		v.Retry = slowDown
	case wechat.ActionQuota:
		v.Retry = blockedHour
	default:
		// Also codes that nobody knows: asking for a token in a loop can only
		// make it worse.
		v.Stop = true
	}
	switch e.Code {
	case 89506:
		v.Retry = blockedDay
	case 89507:
		v.Retry = blockedHour
	}
	return v
}
