package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tidegate/client"
	"tidegate/pkg/wechat/wechatsim"
)

// offerCallbacks lets the followers talk, press menu buttons, scan and
// follow. Some press twice in haste and some callbacks are delivered again,
// as in the field. It offers in a closed loop: a follower acts again only
// after the last act was acknowledged, so that "in order" has a meaning.
func (w *devWorld) offerCallbacks(ctx context.Context, rate float64) error {
	if rate == 0 {
		<-ctx.Done()
		return nil
	}
	_, err := w.sim.Load(ctx, wechatsim.LoadSpec{
		Rate: rate, For: 1000 * time.Hour, Loop: wechatsim.LoopClosed,
		Mix:         wechatsim.Mix{Text: 7, Menu: 2, Scan: 1},
		RepeatShare: 0.02, ParallelShare: 0.02, LoseAckShare: 0.02,
		MenuKey: "BILL:",
	})
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// offerPushes is a business system that sends transaction notices through the
// public API, with the client that others use too.
func (w *devWorld) offerPushes(ctx context.Context, rate float64) error {
	if rate == 0 {
		<-ctx.Done()
		return nil
	}
	c, err := w.client()
	if err != nil {
		return err
	}
	users, err := w.sim.Followers("", 0)
	if err != nil {
		return err
	}
	begun := time.Now()
	for i := 0; ; i++ {
		due := time.Until(begun.Add(time.Duration(float64(i) / rate * float64(time.Second))))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(due):
		}
		if err := w.offerPush(ctx, c, users[i%len(users)]); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// offerPush announces one push to the judge and posts it until it is accepted:
// the idempotency key makes that one message. Announcing comes first because
// the push may arrive before the answer does.
func (w *devWorld) offerPush(ctx context.Context, c *client.Client, openid string) error {
	mark := w.sim.Mark()
	if err := w.sim.ExpectPush("", openid, mark); err != nil {
		return err
	}
	// The answer decides whether this push counts: an ended run must still
	// hear it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if _, err := c.Push(ctx, devPush(openid, mark)); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	w.pushes.Add(1)
	return nil
}

// client is the public Go client with the run's own key.
func (w *devWorld) client() (*client.Client, error) {
	return client.New("http://"+w.api.Addr(), w.key, client.Options{})
}

// devTemplate is the template of the simulated business system.
const devTemplate = "TRANSACTION_NOTICE"

// devPush is a transaction notice; the mark tells the judge which one.
func devPush(openid, mark string) client.Push {
	return client.Push{
		Account: devAccount, OpenID: openid, TemplateID: devTemplate, Reference: mark, IdempotencyKey: mark,
		Data: map[string]string{"thing1": "消费 " + mark, "amount2": "¥12.80"},
	}
}

// devPushJSON is what the curl line posts.
func devPushJSON(openid string) string {
	p := devPush(openid, "")
	p.Reference = "by-hand"
	b, err := json.Marshal(p)
	if err != nil {
		return "{}"
	}
	return string(b)
}
