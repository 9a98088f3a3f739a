package receipts

import (
	"context"
	"fmt"

	"tidegate/pkg/alarm"
	"tidegate/pkg/run"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// alarmRepeats is the name of the alarm about one user.
const alarmRepeats = "user_repeats"

// repeatAlarms turns what the watch sees into alarms. The watch's lock guards it.
type repeatAlarms struct {
	r      *Room
	own    map[follower]string // users with an alarm of their own, and its subject
	shared map[follower]bool   // users behind those
	behind map[string]int      // how many those are, by account
}

func newRepeatAlarms(r *Room) *repeatAlarms {
	return &repeatAlarms{r: r, own: map[follower]string{}, shared: map[follower]bool{}, behind: map[string]int{}}
}

// tell is told when a user begins and ends to repeat too often.
func (a *repeatAlarms) tell(u follower, firing bool) {
	if firing {
		a.fire(u)
	} else {
		a.resolve(u)
	}
}

// fire raises an alarm about the user. With very many of them – a page that
// does not load, an event – the rest is one alarm per account: nobody reads
// thousands.
func (a *repeatAlarms) fire(u follower) {
	c := a.r.cfg.RepeatAlarm
	look := fmt.Sprintf("; look at 'tidegate repeats' (GET /ops/v1/repeats?account=%s) whether it is a person without an answer, a broken page or an attack", u.account)
	lookZH := fmt.Sprintf("；请运行 tidegate repeats（GET /ops/v1/repeats?account=%s），判断是用户未收到答复、页面故障还是攻击", u.account)
	if len(a.own) < c.MaxAlarms {
		user := a.r.d.Hasher.OpenID(u.openid)
		a.own[u] = u.account + " user " + user
		a.raise(a.own[u],
			fmt.Sprintf("user %s of account %s repeated an action %d times or more within %s", user, u.account, c.At, c.Within)+look,
			fmt.Sprintf("公众号 %s 的用户 %s 在 %s 内重复操作 %d 次以上", u.account, user, c.Within, c.At)+lookZH)
		return
	}
	a.shared[u] = true
	a.behind[u.account]++
	if a.behind[u.account] == 1 {
		a.raise(moreUsers(u.account),
			fmt.Sprintf("more than %d users repeat actions %d times or more within %s each, now also of account %s", c.MaxAlarms, c.At, c.Within, u.account)+look,
			fmt.Sprintf("超过 %d 位用户各自在 %s 内重复操作 %d 次以上，现也包括公众号 %s", c.MaxAlarms, c.Within, c.At, u.account)+lookZH)
	}
}

func (a *repeatAlarms) raise(subject, text, textZH string) {
	a.r.met.repeatAlarms.Inc()
	a.r.d.Alarms.Fire(alarm.Alarm{Name: alarmRepeats, Subject: subject, Severity: alarm.Warning, Text: text, TextZH: textZH})
}

func (a *repeatAlarms) resolve(u follower) {
	if subject, ok := a.own[u]; ok {
		delete(a.own, u)
		a.r.d.Alarms.Resolve(alarmRepeats, subject)
		return
	}
	if !a.shared[u] {
		return
	}
	delete(a.shared, u)
	if a.behind[u.account]--; a.behind[u.account] == 0 {
		delete(a.behind, u.account)
		a.r.d.Alarms.Resolve(alarmRepeats, moreUsers(u.account))
	}
}

func moreUsers(account string) string { return account + " more users" }

// countRepeats counts the repeats of a batch that is in the rows.
func (r *Room) countRepeats(news []store.News) {
	for _, n := range news {
		if !isRepeat(n) || !r.repeats.see(n) {
			continue
		}
		account := n.Account
		if !r.hasAccount(account) {
			account = "other" // labels are never from outside
		}
		r.met.repeats.WithLabelValues(account).Inc()
	}
}

func isRepeat(n store.News) bool { return n.Source == wire.FromDoor && n.State == wire.Repeated }

// watchRepeats resolves alarms of users who are calm, also while the database
// is away.
func (r *Room) watchRepeats(ctx context.Context) error {
	run.Every(ctx, r.cfg.HousekeepingEvery, func(context.Context) { r.repeats.sweep() })
	return nil
}
