package wechatsim

import (
	"errors"
	"maps"
	"time"
)

// maxFollowers bounds one account; user/get and memory are made for it.
const maxFollowers = 2_000_000

// API paths that the simulator answers and that limits are set for.
const (
	PathToken         = "/cgi-bin/token"
	PathStableToken   = "/cgi-bin/stable_token"
	PathCustomSend    = "/cgi-bin/message/custom/send"
	PathCustomTyping  = "/cgi-bin/message/custom/typing"
	PathTemplateSend  = "/cgi-bin/message/template/send"
	PathBizSend       = "/cgi-bin/message/subscribe/bizsend"
	PathTemplateList  = "/cgi-bin/template/get_all_private_template"
	PathSubscriptions = "/wxaapi/newtmpl/gettemplate"
	PathQuotaGet      = "/cgi-bin/openapi/quota/get"
	PathClearQuota    = "/cgi-bin/clear_quota"
	PathClearQuotaV2  = "/cgi-bin/clear_quota/v2"
	PathUserGet       = "/cgi-bin/user/get"
	PathUserInfo      = "/cgi-bin/user/info"
	PathUserBatch     = "/cgi-bin/user/info/batchget"
	PathAPIDomainIP   = "/cgi-bin/get_api_domain_ip"
	PathCallbackIP    = "/cgi-bin/getcallbackip"
	PathCallbackCheck = "/cgi-bin/callback/check"
)

// Window is what one user action allows: Count customer-service messages for Life.
type Window struct {
	Count int           `koanf:"count"`
	Life  time.Duration `koanf:"life"`
}

// Limits are WeChat's numbers. They changed over the years, so all are settings.
type Limits struct {
	Message   Window `koanf:"message"`
	Menu      Window `koanf:"menu"`
	Subscribe Window `koanf:"subscribe"`
	Scan      Window `koanf:"scan"`

	// TextBytes is the longest customer-service text (45002 beyond).
	TextBytes int `koanf:"text_bytes"`
	// BodyBytes is the largest API request body.
	BodyBytes int64 `koanf:"body_bytes"`

	TokenLife    time.Duration `koanf:"token_life"`
	TokenOverlap time.Duration `koanf:"token_overlap"`
	ForcedPerDay int           `koanf:"forced_per_day"`
	ForcedGap    time.Duration `koanf:"forced_gap"`

	// ClientMsgIDLife is how long openid + client_msg_id is remembered.
	ClientMsgIDLife time.Duration `koanf:"client_msg_id_life"`
	// SubscriptionCredits is how many bizsend messages each follower has agreed
	// to per template; -1 is without end.
	SubscriptionCredits int `koanf:"subscription_credits"`

	// Daily and PerMinute override quotas by API path; 0 is without limit.
	Daily     map[string]int `koanf:"daily"`
	PerMinute map[string]int `koanf:"per_minute"`
	// ClearsPerMonth bounds clear_quota (48006 beyond).
	ClearsPerMonth int `koanf:"clears_per_month"`
	// UserPage is the page size of user/get.
	UserPage int `koanf:"user_page"`
}

// DefaultLimits are the numbers of the current documents.
func DefaultLimits() Limits {
	return Limits{
		Message:   Window{5, 48 * time.Hour},
		Menu:      Window{3, time.Minute},
		Subscribe: Window{3, time.Minute},
		Scan:      Window{3, time.Minute},

		TextBytes: 2048,
		BodyBytes: 1 << 20,

		TokenLife:    7200 * time.Second,
		TokenOverlap: 5 * time.Minute,
		ForcedPerDay: 20,
		ForcedGap:    30 * time.Second,

		ClientMsgIDLife:     10 * time.Minute,
		SubscriptionCredits: -1,

		Daily: map[string]int{
			PathToken: 2000, PathStableToken: 500_000,
			PathCustomSend: 500_000, PathCustomTyping: 500_000,
			PathTemplateSend: 100_000, PathBizSend: 100_000,
			PathUserGet: 500, PathUserInfo: 5_000_000, PathUserBatch: 500_000,
		},
		PerMinute:      map[string]int{PathStableToken: 10_000},
		ClearsPerMonth: 10,
		UserPage:       10_000,
	}
}

func (l Limits) withDefaults(d Limits) Limits {
	fill(&l.Message, d.Message)
	fill(&l.Menu, d.Menu)
	fill(&l.Subscribe, d.Subscribe)
	fill(&l.Scan, d.Scan)
	fill(&l.TextBytes, d.TextBytes)
	fill(&l.BodyBytes, d.BodyBytes)
	fill(&l.TokenLife, d.TokenLife)
	fill(&l.TokenOverlap, d.TokenOverlap)
	fill(&l.ForcedPerDay, d.ForcedPerDay)
	fill(&l.ForcedGap, d.ForcedGap)
	fill(&l.ClientMsgIDLife, d.ClientMsgIDLife)
	fill(&l.SubscriptionCredits, d.SubscriptionCredits)
	fill(&l.ClearsPerMonth, d.ClearsPerMonth)
	fill(&l.UserPage, d.UserPage)
	l.Daily = overlay(d.Daily, l.Daily)
	l.PerMinute = overlay(d.PerMinute, l.PerMinute)
	return l
}

func overlay(base, over map[string]int) map[string]int {
	out := maps.Clone(base)
	maps.Copy(out, over)
	return out
}

func (l Limits) validate() error {
	for _, w := range []Window{l.Message, l.Menu, l.Subscribe, l.Scan} {
		if w.Count < 0 || w.Life < 0 {
			return errors.New("limits: windows must not be negative")
		}
	}
	if l.TokenLife < 0 || l.TokenOverlap < 0 || l.ForcedGap < 0 || l.ClientMsgIDLife < 0 {
		return errors.New("limits: durations must not be negative")
	}
	if l.TokenLife > 0 && l.TokenOverlap > 0 && l.TokenLife <= l.TokenOverlap {
		return errors.New("limits: token_life must be longer than token_overlap")
	}
	if l.TextBytes < 0 || l.BodyBytes < 0 || l.UserPage < 0 || l.ForcedPerDay < 0 {
		return errors.New("limits: counts must not be negative")
	}
	for path, n := range overlay(l.Daily, l.PerMinute) {
		if n < 0 {
			return errors.New("limits: " + path + ": a quota must not be negative")
		}
	}
	return nil
}
