package engine

import (
	"regexp"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"

	"tidegate/pkg/wire"
)

// Limit is how often one follower may cause what a rule does.
type Limit struct {
	Rule  string
	Times int
	Per   time.Duration
	// DenyBlind says what to do when nobody can tell how often it was: refuse.
	// Otherwise the follower may.
	DenyBlind bool
}

// limit is Limit with what the follower gets instead.
type limit struct {
	Limit
	instead []reply // empty: the fallback text
	silent  bool    // nothing at all
}

var limitShort = regexp.MustCompile(`^(\d{1,4}) per (\S+)$`)

// Bounds of a limit: what is remembered of a follower stays small.
const (
	maxTimes = 1000
	maxPer   = 31 * 24 * time.Hour
)

// limit reads "5 per 10m", or the long form.
func (r *reader) limit(n *yaml.Node, u *rule, of string, _ Known) {
	u.limit = &limit{Limit: Limit{Rule: u.name}}
	if n.Kind == yaml.ScalarNode {
		r.rate(n, u.limit, of+"limit")
		return
	}
	f := r.mapping(n, of+"limit", "rate", "instead", "redis_away")
	if f["rate"] == nil {
		r.fail(n, "%slimit: rate is missing: write it like \"5 per 10m\"", of)
	} else {
		r.rate(f["rate"], u.limit, of+"limit: rate")
	}
	if i := f["instead"]; i != nil {
		if u.limit.silent = i.Value == "silence"; !u.limit.silent {
			u.limit.instead = r.replies(i, of+"limit: instead", scope{})
		}
	}
	if a := f["redis_away"]; a != nil {
		s, _ := r.text(a, of+"limit: redis_away")
		if u.limit.DenyBlind = s == "deny"; s != "deny" && s != "allow" {
			r.fail(a, "%slimit: redis_away: write allow or deny", of)
		}
	}
}

func (r *reader) rate(n *yaml.Node, l *limit, subject string) {
	s, _ := r.text(n, subject)
	m := limitShort.FindStringSubmatch(s)
	if m != nil {
		l.Times, _ = strconv.Atoi(m[1]) // four digits at most
		l.Per, _ = time.ParseDuration(m[2])
	}
	if l.Times < 1 || l.Times > maxTimes || l.Per < time.Second || l.Per > maxPer {
		r.fail(n, "%s: write it like \"5 per 10m\": 1 to %d times, in 1s to 744h", subject, maxTimes)
	}
}

// Refuse makes a decision with Limit set into the one for a follower who has
// had his share: the rule does nothing, and no dialogue moves.
func (d *Decision) Refuse() error {
	l := d.rule.limit
	d.Call, d.Ask, d.Bot, d.Replies, d.Moves, d.State, d.Trail = nil, nil, "", nil, false, nil, ""
	d.NotHere, d.Notes = "", nil
	switch {
	case l.silent:
	case len(l.instead) > 0:
		if err := d.render(l.instead); err != nil {
			return err
		}
	case d.Fallback != "":
		d.Replies = []wire.Content{{Type: "text", Text: d.Fallback}}
	}
	d.Notes = append(d.Notes, "more often than "+strconv.Itoa(l.Times)+" per "+l.Per.String())
	return nil
}
