package main

import (
	"os"
	"time"

	"tidegate/app"
)

type rulesCmd struct {
	Check rulesCheckCmd `cmd:"" help:"Tell everything that is wrong with a rules file, with line and column. Exit code 1 if it cannot be used."`
	Try   rulesTryCmd   `cmd:"" help:"Show what would be answered, and why: which rules were passed over, which one takes the message, what it calls, what the follower sees."`
}

// rulesFile is what both need. The configuration is only read for names.
type rulesFile struct {
	roleCmd
	File string `arg:"" help:"The rules file." type:"path"`
}

func (c rulesFile) options() app.RulesOptions {
	return app.RulesOptions{File: c.File, Source: c.source(), Out: os.Stdout}
}

type rulesCheckCmd struct{ rulesFile }

func (c rulesCheckCmd) Run() error { return app.RulesCheck(c.options()) }

type rulesTryCmd struct {
	rulesFile
	Text     []string          `help:"What the follower writes; several times for a dialogue." sep:"none"`
	Event    string            `help:"An event that comes first, such as CLICK, SCAN or subscribe."`
	EventKey string            `help:"The event's key: the menu button's, or the QR code's scene."`
	Type     string            `help:"A message without text, by WeChat's type: image, video, location."`
	MenuItem string            `help:"The id of the line in a menu message that the last --text was pressed on."`
	Account  string            `help:"The account that it is written to." default:"demo"`
	OpenID   string            `name:"openid" help:"The follower; rules for a per cent of the followers go by it." default:"oTry-1"`
	At       string            `help:"When: 2026-10-10 09:30 (Beijing), or 2026-10-10T09:30:00+08:00; without it, now."`
	Pause    time.Duration     `help:"Time between the messages." default:"5s"`
	Language string            `help:"The follower's language, if it is known."`
	Var      map[string]string `help:"A variable for templates: --var name=value."`
	Answer   string            `help:"JSON that back ends answer. Nothing is called."`
	All      bool              `help:"List every rule that was passed over."`
}

func (c rulesTryCmd) Run() error {
	return app.RulesTry{
		RulesOptions: c.options(), Event: c.Event, EventKey: c.EventKey, Type: c.Type, Texts: c.Text, MenuItem: c.MenuItem,
		Account: c.Account, OpenID: c.OpenID, At: c.At, Pause: c.Pause, Language: c.Language, Vars: c.Var, Answer: c.Answer, All: c.All,
	}.Try()
}
