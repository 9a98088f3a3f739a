package wechat

import (
	"slices"
	"time"

	"tidegate/pkg/fault"
)

// API names one of WeChat's calls, as it appears in metrics and errors.
type API string

// The calls that this package makes.
const (
	APIStableToken  API = "stable_token"
	APIToken        API = "token"
	APICustomSend   API = "custom_send"
	APITyping       API = "custom_typing"
	APITemplateSend API = "template_send"
	APIBizSend      API = "subscribe_bizsend"
	APIQuotaGet     API = "quota_get"
	APIUserGet      API = "user_get"
	APITemplateList API = "template_list"
)

// Path returns the path of the call, the form in which quota/get wants it.
func (a API) Path() string { return apiPaths[a] }

// apiPaths is data, never written to.
var apiPaths = map[API]string{
	APIStableToken:  "/cgi-bin/stable_token",
	APIToken:        "/cgi-bin/token",
	APICustomSend:   "/cgi-bin/message/custom/send",
	APITyping:       "/cgi-bin/message/custom/typing",
	APITemplateSend: "/cgi-bin/message/template/send",
	APIBizSend:      "/cgi-bin/message/subscribe/bizsend",
	APIQuotaGet:     "/cgi-bin/openapi/quota/get",
	APIUserGet:      "/cgi-bin/user/get",
	APITemplateList: "/cgi-bin/template/get_all_private_template",

	APISubscriptionList: "/wxaapi/newtmpl/gettemplate",
}

// Sends reports whether a user sees something when the call succeeds, so that
// doing it twice is a mistake that somebody notices.
func (a API) Sends() bool {
	return a == APICustomSend || a == APITemplateSend || a == APIBizSend
}

// Action says what to do about an errcode. It is what the rooms decide from;
// WeChat's texts change without notice and are never matched.
type Action string

const (
	// ActionNone: errcode 0, it worked.
	ActionNone Action = "none"
	// ActionSuccess: an error that means "already done"; treat as success.
	ActionSuccess Action = "success"
	// ActionRetry: the platform is busy or broken; again later with backoff. A
	// send may have had its effect: see fault.Ambiguous.
	ActionRetry Action = "retry"
	// ActionSlow: a limit over a short time; again after a minute, and slower.
	ActionSlow Action = "slow"
	// ActionRefresh: the token is not valid (any more); renew it, try once more.
	ActionRefresh Action = "refresh_token"
	// ActionStopAccount: the account's configuration or rights are wrong; stop
	// its calls and raise an alarm.
	ActionStopAccount Action = "stop_account"
	// ActionStopAPI: the account has no right to this call, or has lost it; stop
	// this call for the account, the others go on.
	ActionStopAPI Action = "stop_api"
	// ActionIP: our address is not in the account's list; as ActionStopAccount.
	ActionIP Action = "ip_whitelist"
	// ActionUser: this user cannot get it; other users can.
	ActionUser Action = "user"
	// ActionWindow: not before the user does something (customer service only).
	ActionWindow Action = "window"
	// ActionRequest: this request is wrong and stays wrong.
	ActionRequest Action = "request"
	// ActionTemplate: the template is wrong or restricted; stop the template.
	ActionTemplate Action = "template"
	// ActionQuota: a quota of a day or a month is used up. Daily ones come back
	// at midnight in Beijing.
	ActionQuota Action = "quota"
	// ActionBug: we called it wrongly.
	ActionBug Action = "caller_bug"
	// ActionUnknown: an errcode that is in no list; do not retry by itself.
	ActionUnknown Action = "unknown"
)

// codeGroups is the table of error codes, by what to do about them. No code is
// in two groups; the meanings that depend on the call are in ActionOf.
var codeGroups = []struct {
	action Action
	codes  []int
}{
	{ActionNone, []int{0}},
	{ActionRetry, []int{-1, 268487001, 268487002, 268488001, 9001002, 61450}},
	{ActionSlow, []int{45011, 42010, 45066, 45169, 46007, 45061}},
	{ActionRefresh, []int{40001, 40014, 42001, 42006, 61005, 61006}},
	{ActionStopAccount, []int{40013, 40125, 40243, 41002, 41004, 40002, 50004, 50007,
		45087, 45102, 45501, 61003, 61007}},
	{ActionStopAPI, []int{48001, 48004}},
	{ActionIP, []int{40164, 61004, 89503, 89506, 89507}},
	{ActionUser, []int{40003, 43004, 50005, 43101, 48002, 43019, 46004, 43005, 45036, 49003, 70000, 50002}},
	{ActionWindow, []int{45015, 45047, 45080, 45081}},
	{ActionRequest, []int{40004, 40005, 40006, 40007, 40008, 40009, 40010, 40011, 40012, 40033, 47002,
		40035, 40036, 40039, 40165, 40166, 40176, 40249, 41006, 44002, 44003, 44004, 44005,
		45002, 45003, 45004, 45005, 45006, 45007, 45008, 45012, 45013, 45014, 45051, 45052, 45067, 45072,
		45083, 45084, 45098, 45099, 45113, 45166, 47001, 47003, 48008, 48011, 48021, 48022, 41030,
		76003, 76021, 76022}},
	{ActionTemplate, []int{43116, 40037, 43100}},
	{ActionQuota, []int{45009, 45028, 45040, 45093, 48006}},
	{ActionSuccess, []int{45065, 44007}},
	{ActionBug, []int{41001, 43001, 43002, 43003, 40038}},
}

// ActionOf says what to do about an errcode of a call. A code can mean two
// things: from a token call, 40001 says that the secret is wrong, which no new
// token can mend. 50002 counts as the user's; when it meets one user after
// another it is the account that is limited, which only the caller can see.
func ActionOf(code int, api API) Action {
	if (api == APIStableToken || api == APIToken) && code == 40001 {
		return ActionStopAccount
	}
	for _, g := range codeGroups {
		if slices.Contains(g.codes, code) {
			return g.action
		}
	}
	return ActionUnknown
}

// kindOf maps an action to the kind that other rooms decide retries from.
// Busy and broken are ambiguous for a call that shows something to a user: an
// error from behind the point of no return looks the same as one before it.
func kindOf(action Action, api API) fault.Kind {
	switch action {
	case ActionRetry:
		if api.Sends() {
			return fault.Ambiguous
		}
		return fault.Unavailable
	case ActionSlow, ActionQuota:
		return fault.Limited
	case ActionRefresh:
		return fault.Unavailable
	case ActionStopAccount, ActionStopAPI, ActionIP:
		return fault.Stopped
	case ActionBug:
		return fault.Internal
	}
	return fault.Final
}

// slowDown is how long ActionSlow asks to wait: these limits count minutes.
const slowDown = time.Minute
