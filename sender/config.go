package sender

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/sender/hold"
	"tidegate/sender/intake"
)

// Config is the sender's section of the configuration.
type Config struct {
	// Node names this process in intent rows.
	Node string `koanf:"node"`
	// Intake bounds the push API.
	Intake intake.Config `koanf:"intake"`
	// Retry says how long a message is tried.
	Retry Retry `koanf:"retry"`
	// QuotaPause is how long an API rests after errcode 45009; 0 means until
	// midnight in Beijing, when WeChat counts anew.
	QuotaPause time.Duration `koanf:"quota_pause"`
	// KeepIntents is how long intents are kept.
	KeepIntents time.Duration `koanf:"keep_intents"`
	// Hold says how letters wait that cannot go for a while.
	Hold hold.Config `koanf:"hold"`
}

// Retry bounds the tries of one message. Waiting for a permit, a token, a
// closed road or a quota does not count as a try.
type Retry struct {
	// MaxTries bounds the requests whose failure may pass.
	MaxTries int `koanf:"max_tries"`
	// MaxAge bounds the time from the first try.
	MaxAge time.Duration `koanf:"max_age"`
	// First and Last are the pauses between tries: they double from First to
	// Last and are drawn at random below that.
	First time.Duration `koanf:"first"`
	Last  time.Duration `koanf:"last"`
	// SafeRepeat is how long after its first try a push that may have arrived
	// is repeated. WeChat remembers client_msg_id for ten minutes.
	SafeRepeat time.Duration `koanf:"safe_repeat"`
	// ReplyRepeats is how often a reply of class prefer_duplicate that may have
	// arrived is sent again.
	ReplyRepeats int `koanf:"reply_repeats"`
}

// DefaultConfig suits production.
func DefaultConfig() Config {
	return Config{
		Node:   "sender",
		Intake: intake.DefaultConfig(),
		Retry: Retry{
			MaxTries: 20, MaxAge: 2 * time.Hour,
			First: 500 * time.Millisecond, Last: 20 * time.Second,
			SafeRepeat: 8 * time.Minute, ReplyRepeats: 1,
		},
		KeepIntents: 72 * time.Hour,
		Hold:        hold.DefaultConfig(),
	}
}

// memoryOfWeChat is how long client_msg_id is honoured (wechat.md 4.3).
const memoryOfWeChat = 10 * time.Minute

// Validate names the first setting that cannot work.
func (c Config) Validate() error {
	r := c.Retry
	switch {
	case c.Node == "" || len(c.Node) > 100:
		return errors.New("sender.node: give this process a name of 1 to 100 characters")
	case r.MaxTries < 1 || r.MaxTries > 100:
		return fmt.Errorf("sender.retry.max_tries %d: use 1 to 100", r.MaxTries)
	case r.MaxAge < time.Second:
		return fmt.Errorf("sender.retry.max_age %s: use 1s or more", r.MaxAge)
	case r.First < time.Millisecond || r.Last < r.First:
		return fmt.Errorf("sender.retry: first %s and last %s: use 1ms or more, and last not below first", r.First, r.Last)
	case r.SafeRepeat <= 0 || r.SafeRepeat > memoryOfWeChat-time.Minute:
		return fmt.Errorf("sender.retry.safe_repeat %s: use more than 0 and at most 9m, because WeChat forgets a message's id after %s", r.SafeRepeat, memoryOfWeChat)
	case r.ReplyRepeats < 0 || r.ReplyRepeats > 5:
		return fmt.Errorf("sender.retry.reply_repeats %d: use 0 to 5", r.ReplyRepeats)
	case c.QuotaPause < 0:
		return fmt.Errorf("sender.quota_pause %s: use 0 for midnight in Beijing, or a positive duration", c.QuotaPause)
	case c.KeepIntents < time.Hour:
		return fmt.Errorf("sender.keep_intents %s: use 1h or more", c.KeepIntents)
	}
	if err := c.Hold.Validate(); err != nil {
		return err
	}
	return c.Intake.Validate()
}

// Limits are an account's caps on this node, one for each API. A zero rate
// means no limit of that kind.
type Limits struct {
	Replies      ratelimit.Limit `koanf:"replies"`      // customer-service messages
	Template     ratelimit.Limit `koanf:"template"`     // template messages, both lanes together
	Subscription ratelimit.Limit `koanf:"subscription"` // subscription messages, both lanes together
}

// DefaultLimits stay below what WeChat was seen to bear at small accounts.
func DefaultLimits() Limits {
	return Limits{
		Replies:      ratelimit.Limit{Rate: 200, Burst: 20, Concurrency: 64},
		Template:     ratelimit.Limit{Rate: 200, Burst: 20, Concurrency: 64},
		Subscription: ratelimit.Limit{Rate: 200, Burst: 20, Concurrency: 64},
	}
}

func (l Limits) of(api wechat.API) ratelimit.Limit {
	switch api {
	case wechat.APICustomSend:
		return l.Replies
	case wechat.APITemplateSend:
		return l.Template
	}
	return l.Subscription
}

// Validate names the first limit that cannot work.
func (l Limits) Validate() error {
	for _, n := range []struct {
		name  string
		limit ratelimit.Limit
	}{{"replies", l.Replies}, {"template", l.Template}, {"subscription", l.Subscription}} {
		if err := n.limit.Validate(); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// Account is what the sender knows of an account.
type Account struct {
	Name   string
	AppID  string
	Secret string
	Errors []ErrorRule // exceptions from the table of error codes
	Limits Limits
	Caps   Caps
	Quiet  QuietHours
}

var appIDForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (a Account) validate() error {
	switch {
	case !wire.ValidAccount(a.Name):
		return fmt.Errorf("account %.40q: the name must be 1 to 40 of a-z, 0-9 and -", a.Name)
	case !appIDForm.MatchString(a.AppID):
		return fmt.Errorf("account %s: appid %.64q is not an appid", a.Name, a.AppID)
	case a.Secret == "":
		return fmt.Errorf("account %s: the app secret is missing", a.Name)
	}
	if err := a.Limits.Validate(); err != nil {
		return fmt.Errorf("account %s: limits.%w", a.Name, err)
	}
	if err := a.Caps.Validate(); err != nil {
		return fmt.Errorf("account %s: caps.%w", a.Name, err)
	}
	if err := ValidateErrors(a.Errors); err != nil {
		return fmt.Errorf("account %s: %w", a.Name, err)
	}
	if err := a.Quiet.Validate(); err != nil {
		return fmt.Errorf("account %s: %w", a.Name, err)
	}
	return nil
}
