package credit

import (
	"fmt"
	"strings"
	"time"
)

// Window is what one act of a follower allows.
type Window struct {
	// Count of messages; -1 is as many as one likes, 0 opens nothing.
	Count int `koanf:"count"`
	// Valid is how long, from the act.
	Valid time.Duration `koanf:"valid"`
}

// Config is the section credit: WeChat has changed these numbers before. Robots
// and senders need the same.
type Config struct {
	// Off sends everything and lets WeChat refuse.
	Off bool `koanf:"off"`
	// Timeout bounds one question to Redis: a reply waits behind it.
	Timeout time.Duration `koanf:"timeout"`
	// Message is for what the follower writes, says or shows.
	Message Window `koanf:"message"`
	// Menu is for CLICK, scancode_push and scancode_waitmsg, and for items of a
	// msgmenu.
	Menu Window `koanf:"menu"`
	// Follow and Scan are for the events subscribe and SCAN.
	Follow Window `koanf:"follow"`
	Scan   Window `koanf:"scan"`
	// Events are others by their name, for example of a payment.
	Events map[string]Window `koanf:"events"`
}

// DefaultConfig has the numbers of WeChat's pages of 2026 (wechat.md 4.2).
func DefaultConfig() Config {
	short := Window{Count: 3, Valid: time.Minute}
	return Config{Timeout: 100 * time.Millisecond, Message: Window{Count: 5, Valid: 48 * time.Hour}, Menu: short, Follow: short, Scan: short}
}

const (
	maxCount  = 1000
	maxValid  = 7 * 24 * time.Hour
	maxEvents = 100
)

// Validate names the first setting that cannot work.
func (c Config) Validate() error {
	if c.Timeout < time.Millisecond || c.Timeout > 5*time.Second {
		return fmt.Errorf("credit.timeout %s: use 1ms to 5s", c.Timeout)
	}
	if len(c.Events) > maxEvents {
		return fmt.Errorf("credit.events: %d events, the limit is %d", len(c.Events), maxEvents)
	}
	all := map[string]Window{"message": c.Message, "menu": c.Menu, "follow": c.Follow, "scan": c.Scan}
	for name, w := range c.Events {
		all["events."+name] = w
	}
	for name, w := range all {
		if w.Count < -1 || w.Count > maxCount {
			return fmt.Errorf("credit.%s.count %d: use 1 to %d, -1 for no limit, or 0 for nothing", name, w.Count, maxCount)
		}
		if w.Count != 0 && (w.Valid < time.Second || w.Valid > maxValid) {
			return fmt.Errorf("credit.%s.valid %s: use 1s to %s", name, w.Valid, maxValid)
		}
	}
	return nil
}

// Act is what of a callback decides about windows.
type Act struct {
	Account, OpenID, ID string
	MsgType, Event      string
	MenuItem            bool // an item of a msgmenu was pressed: it counts as a menu
	CreateTime          int64
	ReceivedAt          int64 // Unix milliseconds
}

// says tells that the act is a message: the sort that comes most.
func (a Act) says() bool { return !a.MenuItem && !strings.EqualFold(a.MsgType, "event") }

// window is what the act opens.
func (c Config) window(a Act) Window {
	switch {
	case a.says():
		return c.Message
	case !strings.EqualFold(a.MsgType, "event"):
		return c.Menu
	}
	switch strings.ToLower(a.Event) {
	case "click", "scancode_push", "scancode_waitmsg":
		return c.Menu
	case "subscribe":
		return c.Follow
	case "scan":
		return c.Scan
	}
	for name, w := range c.Events {
		if strings.EqualFold(name, a.Event) {
			return w
		}
	}
	return Window{}
}

// mostAhead is how many seconds WeChat's time of an act may lie behind the door's
// clock and be believed.
const mostAhead = 24 * 3600

// until is when the act's window ends, in Unix milliseconds: by WeChat's time of the
// act or the door's, whichever is later. A door whose clock is behind must not close
// windows; a window that is kept open too long costs a refusal of WeChat's.
func (w Window) until(a Act) int64 {
	from := a.ReceivedAt
	if a.CreateTime > from/1000 && a.CreateTime-from/1000 <= mostAhead {
		from = a.CreateTime * 1000
	}
	return from + w.Valid.Milliseconds()
}
