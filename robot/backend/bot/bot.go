package bot

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/robot/backend"
)

// Bot is one bot of one account. It is safe for concurrent use.
type Bot struct {
	client  *backend.Client
	cfg     backend.BotConfig
	name    string
	forward *wechat.Forwarder
}

// New makes a bot of a back end of type wechat. The client is that back end's.
func New(cfg backend.Config, client *backend.Client) (*Bot, error) {
	cfg = cfg.WithDefaults()
	if cfg.Type != backend.TypeWeChat {
		return nil, fault.New(fault.Invalid, "bot "+cfg.Name, "the back end is of type %s: set type: wechat", cfg.Type)
	}
	f, err := wechat.NewForwarder(cfg.Bot.Credentials())
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, "bot "+cfg.Name, err)
	}
	return &Bot{client: client, cfg: cfg.Bot, name: cfg.Name, forward: f}, nil
}

// Answer is what a bot answered, in our words.
type Answer struct {
	Replies []wire.Content
	// Silent says why there are no replies although nothing failed, or is empty.
	Silent string
	// Note says what was left out of the answer, or is empty.
	Note string
}

// Ask gives the bot a callback and reads its answer. answerable tells that
// WeChat would take an answer to this callback; what a bot answers to others is
// left out, as WeChat does not take it either. most bounds the replies; before is
// asked right before each try leaves (backend.Request).
func (b *Bot) Ask(ctx context.Context, c *wire.Callback, answerable bool, most int, before func() error) (Answer, error) {
	if len(c.Body) == 0 {
		return Answer{}, fault.New(fault.Invalid, b.op(), "the callback has come without its original body")
	}
	var (
		passive  wechat.Passive
		answered bool
	)
	_, err := b.client.Exchange(ctx, func() (backend.Request, error) {
		query, body, err := b.forward.Forward(c.ToUser, c.OpenID, c.Body, nonce(), time.Now())
		if err != nil {
			return backend.Request{}, fault.Wrap(fault.Invalid, b.op(), err)
		}
		return backend.Request{Method: http.MethodPost, Path: "?" + query, Body: body, XML: true, Key: cmp.Or(c.ReplayOf, c.ID), Trace: c.TraceParent, Before: before}, nil
	}, func(body []byte) (err error) {
		if passive, answered, err = b.forward.Read(body); err == nil && answered {
			err = b.belongs(passive, c)
		}
		return err
	})
	switch {
	case err != nil:
		return Answer{}, err
	case !answered:
		return Answer{Silent: "the bot gave no answer"}, nil
	case !answerable:
		return Answer{Silent: "the bot answered a callback that WeChat lets nobody answer"}, nil
	}
	return b.translate(passive, most)
}

// belongs holds the answer's receiver against the callback: an answer that was
// meant for somebody else must reach nobody.
func (b *Bot) belongs(p wechat.Passive, c *wire.Callback) error {
	if p.ToUser != c.OpenID {
		return fault.New(fault.Final, b.op(), "its answer is for another follower (ToUserName): it is not sent")
	}
	if c.ToUser != "" && p.FromUser != c.ToUser {
		return fault.New(fault.Final, b.op(), "its answer comes from another account (FromUserName): it is not sent")
	}
	return nil
}

func (b *Bot) op() string { return "ask bot " + b.name }

// nonce is a number like WeChat's. It keeps requests apart and is no secret.
func nonce() string { return strconv.Itoa(100_000_000 + rand.IntN(1_900_000_000)) }
