package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"tidegate/client"
	"tidegate/pkg/wechat/wechatsim"
)

// reorderUsers is how many followers act when two replies of one of them are
// to be swapped: few, so that the victim acts again soon. A reply that waits
// in vain for its successor would be a lost one, which is another fault.
const reorderUsers = 20

// offerCallbacks lets the followers talk, press menu buttons, scan and
// follow. Some press twice in haste and some callbacks are delivered again,
// as in the field. It offers in a closed loop: a follower acts again only
// after the last act was acknowledged, so that "in order" has a meaning.
func (w *devWorld) offerCallbacks(ctx context.Context, rate float64, fault string) error {
	if rate == 0 {
		<-ctx.Done()
		return nil
	}
	users := 0 // all
	if fault == breakReorder {
		users = reorderUsers
	}
	_, err := w.sim.Load(ctx, wechatsim.LoadSpec{
		Users: users, Rate: rate, For: 1000 * time.Hour, Loop: wechatsim.LoopClosed,
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
// public API, with the client that others use too. It first asks again for
// what the run before never got an answer to.
func (w *devWorld) offerPushes(ctx context.Context, rate float64) error {
	c, err := w.client()
	if err != nil {
		return err
	}
	log, unanswered, accepted, err := openPushLog(filepath.Join(w.dir, "pushes.ndjson"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	w.pushes.Store(accepted)
	for _, n := range unanswered {
		if err := w.push(ctx, c, log, n); err != nil {
			return err
		}
	}
	if rate == 0 {
		<-ctx.Done()
		return nil
	}
	return w.pacePushes(ctx, c, log, rate)
}

func (w *devWorld) pacePushes(ctx context.Context, c *client.Client, log *pushLog, rate float64) error {
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
		n := pushNote{Mark: w.sim.Mark(), OpenID: users[i%len(users)]}
		if err := log.note(n); err != nil {
			return err
		}
		// Announcing comes first because the push may arrive before the answer.
		if err := w.sim.ExpectPush("", n.OpenID, n.Mark); err != nil {
			return err
		}
		if err := w.push(ctx, c, log, n); err != nil {
			return err
		}
	}
}

// push posts one push until it is accepted: the idempotency key makes that one
// message. The answer decides whether it counts, so an ended run still hears
// it.
func (w *devWorld) push(ctx context.Context, c *client.Client, log *pushLog, n pushNote) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if _, err := c.Push(ctx, devPush(n.OpenID, n.Mark)); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	w.pushes.Add(1)
	return log.note(pushNote{Mark: n.Mark, Accepted: true})
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
	p := devPush(openid, "by hand")
	p.Reference, p.IdempotencyKey = "by-hand", ""
	b, err := json.Marshal(p)
	if err != nil {
		return "{}"
	}
	return string(b)
}
