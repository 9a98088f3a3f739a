package wechatsim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// account is the living state of one account. One lock guards all of it; no
// call is made while it is held.
type account struct {
	cfg    Account
	limits Limits
	open   OpenPoints

	mu        sync.Mutex
	seal      sealer
	url       string
	followers map[string]*follower
	order     []string // openids by the time they were added, for user/get
	normal    tokenCell
	stable    tokenCell
	quota     quotas
	sent      map[string]sentOnce // client_msg_id memory
	sentOrder []string
	failures  int       // failed deliveries in a row
	pausedTil time.Time // MarkFail, business time
	seed      int64
}

// follower is what WeChat knows of one user of one account.
type follower struct {
	openid     string
	since      time.Time
	subscribed bool
	refuses    bool // blocks the account's messages
	windows    allowance
	lastSeen   time.Time
	typing     time.Time // until when the typing sign shows
	credits    map[string]int
}

func newAccount(cfg Account, limits Limits, open OpenPoints, seed int64) (*account, error) {
	seal, err := newSealer(cfg)
	if err != nil {
		return nil, err
	}
	return &account{
		cfg: cfg, limits: limits, open: open, seal: seal, url: cfg.CallbackURL, seed: seed,
		followers: map[string]*follower{}, sent: map[string]sentOnce{},
		quota: quotas{limits: limits},
	}, nil
}

// addFollowers makes n more followers and returns their openids. The names
// depend on seed, account and number only, so a restart finds them again.
func (a *account) addFollowers(n int, now time.Time) ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n < 0 || len(a.order)+n > maxFollowers {
		return nil, fmt.Errorf("followers: %d more would make %d, the most is %d", n, len(a.order)+n, maxFollowers)
	}
	made := make([]string, 0, n)
	for range n {
		openid := a.openid(len(a.order))
		a.join(openid, now)
		made = append(made, openid)
	}
	return made, nil
}

func (a *account) openid(i int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	var h uint64 = 14695981039346656037
	for _, c := range []byte(a.cfg.AppID) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	r := rand.New(rand.NewPCG(h, uint64(a.seed)<<24^uint64(i)))
	b := []byte("oSim")
	for len(b) < 28 {
		b = append(b, letters[r.IntN(len(letters))])
	}
	return string(b)
}

// join makes a follower. The caller holds the lock.
func (a *account) join(openid string, now time.Time) *follower {
	f := &follower{openid: openid, since: now, subscribed: true, windows: allowance{separate: a.open.SeparateWindows}}
	a.followers[openid] = f
	a.order = append(a.order, openid)
	return f
}

// act lets a user's act change what WeChat knows: windows, following, presence.
func (a *account) act(s Stimulus, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.followers[s.OpenID]
	if f == nil {
		return
	}
	switch s.Event {
	case EventTemplateFinish, EventSubscribeSent:
		return
	case EventUnsubscribe:
		f.subscribed, f.windows.grants = false, nil
		return
	case EventSubscribe:
		f.subscribed, f.since = true, now
		f.windows.grant("subscribe", a.limits.Subscribe, now)
	case EventClick, "scancode_push", "scancode_waitmsg":
		f.windows.grant("menu", a.limits.Menu, now)
	case EventScan:
		f.windows.grant("scan", a.limits.Scan, now)
	case "":
		if s.MenuItem != "" {
			f.windows.grant("menu", a.limits.Menu, now)
			break
		}
		f.windows.grant("message", a.limits.Message, now)
	}
	f.lastSeen = now
}

func (a *account) isFollower(openid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.followers[openid]
	return f != nil && f.subscribed
}

// some returns up to n openids of followers, all when n is 0.
func (a *account) some(n int) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, id := range a.order {
		if n > 0 && len(out) == n {
			break
		}
		if a.followers[id].subscribed {
			out = append(out, id)
		}
	}
	return out
}

// page returns one page of user/get: openids after next, and the total.
func (a *account) page(next string, size int) (total int, ids []string, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, id := range a.order {
		if a.followers[id].subscribed {
			all = append(all, id)
		}
	}
	from := 0
	if next != "" {
		i := slices.Index(all, next)
		if i < 0 {
			return len(all), nil, false
		}
		from = i + 1
	}
	to := min(from+size, len(all))
	return len(all), all[from:to], true
}

// setRefuses lets a follower block or accept the account's messages.
func (a *account) setRefuses(openid string, refuses bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.followers[openid]
	if f != nil {
		f.refuses = refuses
	}
	return f != nil
}

// agree adds n subscription messages per template to what the user agreed to;
// refusing takes all away.
func (a *account) agree(openid string, templates []string, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.followers[openid]
	if f == nil {
		return false
	}
	if f.credits == nil {
		f.credits = map[string]int{}
	}
	for _, t := range templates {
		if n == 0 {
			f.credits[t] = 0
		} else {
			f.credits[t] = max(0, f.credits[t]) + n
		}
	}
	return true
}
