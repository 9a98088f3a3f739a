package wechatsim

import (
	"crypto/rand"
	"encoding/base64"
	"slices"
	"strings"
	"time"
)

// tokenMemory is how many outdated tokens are remembered, to tell an expired or
// replaced one from one that never was.
const tokenMemory = 64

// issued is one access token and how long it is good.
type issued struct {
	text  string
	until time.Time
	// replaced tells that a newer one ended it, rather than its age.
	replaced bool
}

// tokenCell holds the tokens of one endpoint, newest first. The plain and the
// stable endpoint have a cell each: neither ends the other's tokens.
type tokenCell struct {
	list       []issued
	forcedDay  int
	forced     int
	lastForced time.Time
}

// issue makes a new token; the older ones stay good for at most overlap.
func (c *tokenCell) issue(now time.Time, life, overlap time.Duration) issued {
	for i := range c.list {
		if i > 0 {
			overlap = 0 // two live tokens, never three
		}
		if end := now.Add(overlap); c.list[i].until.After(end) {
			c.list[i].until, c.list[i].replaced = end, true
		}
	}
	t := issued{text: newToken(), until: now.Add(life)}
	c.list = slices.Insert(c.list, 0, t)
	if len(c.list) > tokenMemory {
		c.list = c.list[:tokenMemory]
	}
	return t
}

// current is the stable token as a normal call sees it: renewed by WeChat when
// five minutes are left, so at least those remain.
func (c *tokenCell) current(now time.Time, l Limits) issued {
	if len(c.list) == 0 || c.list[0].until.Sub(now) <= l.TokenOverlap {
		return c.issue(now, l.TokenLife, l.TokenOverlap)
	}
	return c.list[0]
}

// force ends the current token at once, unless it was forced too often or less
// than the gap ago: then the current one comes back unchanged.
func (c *tokenCell) force(now time.Time, l Limits) issued {
	if day := dayOf(now); day != c.forcedDay {
		c.forcedDay, c.forced = day, 0
	}
	early := !c.lastForced.IsZero() && now.Sub(c.lastForced) < l.ForcedGap
	if early || c.forced >= l.ForcedPerDay {
		return c.current(now, l)
	}
	c.forced++
	c.lastForced = now
	return c.issue(now, l.TokenLife, 0)
}

// judge returns 0 for a live token, 42001 for one that reached its age, 40001
// for one that a newer one ended, and -1 for one that is not of this cell.
func (c *tokenCell) judge(token string, now time.Time) int {
	for _, t := range c.list {
		switch {
		case t.text != token:
		case now.Before(t.until):
			return 0
		case t.replaced:
			return errInvalidCredential
		default:
			return errTokenExpired
		}
	}
	return -1
}

// newToken has the length of today's tokens; 512 characters must be reserved.
func newToken() string {
	var b [110]byte
	rand.Read(b[:])
	return "91_" + base64.RawURLEncoding.EncodeToString(b[:])
}

// looksLikeToken tells 40001 (a token, but not a good one) from 40014.
func looksLikeToken(s string) bool {
	return strings.HasPrefix(s, "91_") && len(s) > 100 && len(s) <= 512
}
