package app

import (
	"time"

	"tidegate/proxy"
	"tidegate/robot"
	"tidegate/sender"
)

// Each room gets its own view of the accounts: the robot never sees a secret,
// the proxy none of the AppSecret.

// defaultFreshness is how far a callback's timestamp may be from our clock
// where an account says nothing (S5): WeChat's own repeats carry fresh ones.
const defaultFreshness = 5 * time.Minute

func (c Config) proxyAccounts() []proxy.Account {
	out := make([]proxy.Account, len(c.Accounts))
	for i, a := range c.Accounts {
		out[i] = a.atTheDoor()
	}
	return out
}

func (a AccountConfig) atTheDoor() proxy.Account {
	if a.Freshness == 0 {
		a.Freshness = defaultFreshness
	}
	return proxy.Account{Name: a.Name, GhID: a.GhID, Credentials: a.Credentials, AllowFrom: a.AllowFrom}
}

func (c Config) robotAccounts() []robot.Account {
	out := make([]robot.Account, len(c.Accounts))
	for i, a := range c.Accounts {
		out[i] = robot.Account{Name: a.Name, Limits: a.Robot}
	}
	return out
}

// senderAccounts fills caps that were left out: no cap at all must be asked
// for, it never comes from forgetting.
func (c Config) senderAccounts() []sender.Account {
	out := make([]sender.Account, len(c.Accounts))
	for i, a := range c.Accounts {
		limits := a.Sender
		if limits == (sender.Limits{}) {
			limits = sender.DefaultLimits()
		}
		out[i] = sender.Account{Name: a.Name, AppID: a.AppID, Secret: a.Secret, Errors: a.Errors, Limits: limits, Caps: a.Caps, Quiet: a.QuietHours}
	}
	return out
}

func (c Config) names() []string {
	out := make([]string, len(c.Accounts))
	for i, a := range c.Accounts {
		out[i] = a.Name
	}
	return out
}
