package receipts

import (
	"fmt"
	"time"
)

// RepeatAlarm says when a user's repeats (M9) are told to a person.
type RepeatAlarm struct {
	// At is the number of one user's repeats within Within that raises the
	// alarm; 0 raises none.
	At int `koanf:"at"`
	// Within is the length of the sliding window.
	Within time.Duration `koanf:"within"`
	// Calm is how long a user must have stayed below before the alarm is
	// resolved: one user raises at most one alarm in that time.
	Calm time.Duration `koanf:"calm"`
	// MaxUsers bounds the users that are watched at once in this process; the
	// ones that were quiet the longest make room.
	MaxUsers int `koanf:"max_users"`
	// MaxAlarms bounds the users with an alarm of their own; further ones share
	// one per account.
	MaxAlarms int `koanf:"max_alarms"`
}

// maxWatched bounds the repeats remembered in this process, of 16 bytes each.
const maxWatched = 10_000_000

func defaultRepeatAlarm() RepeatAlarm {
	return RepeatAlarm{At: 20, Within: time.Minute, Calm: 10 * time.Minute, MaxUsers: 10_000, MaxAlarms: 50}
}

// check gives the field that cannot work and why; "" if all can.
func (c RepeatAlarm) check() (field, why string) {
	switch {
	case c.At < 0 || c.At == 1 || c.At > 1000:
		return "at", fmt.Sprintf("%d: use 2 to 1000, or 0 for no alarm", c.At)
	case c.Within < time.Second || c.Within > time.Hour:
		return "within", fmt.Sprintf("%s: use 1s to 1h", c.Within)
	case c.Calm < c.Within || c.Calm > 24*time.Hour:
		return "calm", fmt.Sprintf("%s: use at least repeat_alarm.within (%s) and at most 24h", c.Calm, c.Within)
	case c.MaxUsers < 1 || c.MaxUsers*max(c.At, 1) > maxWatched:
		return "max_users", fmt.Sprintf("%d: use 1 to %d, so that memory stays bounded", c.MaxUsers, maxWatched/max(c.At, 1))
	case c.MaxAlarms < 1 || c.MaxAlarms > 1000:
		return "max_alarms", fmt.Sprintf("%d: use 1 to 1000", c.MaxAlarms)
	}
	return "", ""
}
