package sender

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"tidegate/pkg/control"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// Caps are what an account's pushes have to pass before the caps of their API. All
// of them hold over all senders.
type Caps struct {
	// BulkShare is the part of an API's rate that bulk pushes may use while realtime
	// pushes wait; 0 is 0.8.
	BulkShare float64 `koanf:"bulk_share"`
	// Quota caps the calls of a day.
	Quota QuotaCaps `koanf:"quota"`
	// Templates and Apps cap the rates of single templates and applications.
	Templates []NamedCap `koanf:"templates"`
	Apps      []NamedCap `koanf:"apps"`
	// User caps what one follower gets.
	User UserCap `koanf:"user"`
}

// QuotaCaps cap the calls of an API in a day of WeChat, which begins at midnight in
// Beijing. 0 is no cap of ours; WeChat's own quota is asked for and holds as well.
type QuotaCaps struct {
	// OwnOnly does without asking WeChat how large a quota is and what was used.
	OwnOnly      bool  `koanf:"own_only"`
	Replies      int64 `koanf:"replies"`
	Template     int64 `koanf:"template"`
	Subscription int64 `koanf:"subscription"`
}

func (q QuotaCaps) of(api wechat.API) int64 {
	switch api {
	case wechat.APICustomSend:
		return q.Replies
	case wechat.APITemplateSend:
		return q.Template
	}
	return q.Subscription
}

// NamedCap is the rate of one template or application. Rates may be fractions:
// rate 1019 per 1m is 1,019 in a minute.
type NamedCap struct {
	Name  string        `koanf:"name"`
	Rate  float64       `koanf:"rate"`
	Per   time.Duration `koanf:"per"` // 0 is a second
	Burst int           `koanf:"burst"`
}

func (c NamedCap) limit() ratelimit.Limit {
	per := c.Per
	if per == 0 {
		per = time.Second
	}
	return ratelimit.Limit{Rate: c.Rate / per.Seconds(), Burst: c.Burst}
}

// UserCap is what one follower gets at most in any period of that length, wherever
// it begins.
type UserCap struct {
	Limit  int           `koanf:"limit"` // 0 is no cap
	Period time.Duration `koanf:"period"`
	// Lanes are those that it caps; none is bulk alone.
	Lanes []string `koanf:"lanes"`
}

// caps reports whether pushes of a lane are capped.
func (u UserCap) caps(lane string) bool {
	if u.Limit == 0 {
		return false
	}
	return slices.Contains(u.Lanes, lane) || len(u.Lanes) == 0 && lane == wire.LaneBulk
}

// bulkShare is the part of the rate for bulk where nothing is said.
const bulkShare = 0.8

func (c Caps) share() float64 {
	if c.BulkShare == 0 {
		return bulkShare
	}
	return c.BulkShare
}

// The bounds of what a file may hold.
const (
	maxNamedCaps = 1000
	maxDayQuota  = 1e12
)

// capName is what the name of a knob may be made of.
var capName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// Validate reports every cap that cannot work.
func (c Caps) Validate() error {
	var errs []error
	if c.BulkShare < 0 || c.BulkShare > 1 {
		errs = append(errs, fmt.Errorf("bulk_share %v: use 0.01 to 1, or 0 for %v", c.BulkShare, bulkShare))
	}
	for _, q := range []struct {
		name string
		n    int64
	}{{"replies", c.Quota.Replies}, {"template", c.Quota.Template}, {"subscription", c.Quota.Subscription}} {
		if q.n < 0 || q.n > maxDayQuota {
			errs = append(errs, fmt.Errorf("quota.%s %d: use 0 for no cap, or up to %d a day", q.name, q.n, int64(maxDayQuota)))
		}
	}
	errs = append(errs, namedCaps("templates", c.Templates), namedCaps("apps", c.Apps))
	if u := c.User; u.Limit != 0 {
		if err := (ratelimit.Window{Most: u.Limit, Period: u.Period}).Validate(); err != nil {
			errs = append(errs, fmt.Errorf("user.%w", err))
		}
	}
	for _, lane := range c.User.Lanes {
		if lane != wire.LaneRealtime && lane != wire.LaneBulk {
			errs = append(errs, fmt.Errorf("user.lanes: %.20q: use %s and %s", lane, wire.LaneRealtime, wire.LaneBulk))
		}
	}
	return errors.Join(errs...)
}

func namedCaps(what string, caps []NamedCap) error {
	var errs []error
	if len(caps) > maxNamedCaps {
		return fmt.Errorf("%s: %d of them: use at most %d", what, len(caps), maxNamedCaps)
	}
	seen := map[string]bool{}
	for _, c := range caps {
		switch {
		case !capName.MatchString(c.Name):
			errs = append(errs, fmt.Errorf("%s: name %.40q: use 1 to 100 of letters, digits, - and _", what, c.Name))
		case seen[c.Name]:
			errs = append(errs, fmt.Errorf("%s: %s stands there twice", what, c.Name))
		case c.Per < 0 || c.Per > 24*time.Hour || c.Per > 0 && c.Per < time.Second:
			errs = append(errs, fmt.Errorf("%s.%s: per %v: use 1s to 24h", what, c.Name, c.Per))
		case !(c.Rate > 0):
			errs = append(errs, fmt.Errorf("%s.%s: rate %v: use more than 0, or leave the cap out", what, c.Name, c.Rate))
		default:
			l := control.Limit{Rate: c.limit().Rate, Burst: c.Burst}
			if err := errors.Join(c.limit().Validate(), l.Validate(false)); err != nil {
				errs = append(errs, fmt.Errorf("%s.%s: %w", what, c.Name, err))
			}
		}
		seen[c.Name] = true
	}
	return errors.Join(errs...)
}
