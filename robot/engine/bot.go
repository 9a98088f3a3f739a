package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"

	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
)

// slots is how finely followers are divided: a hundredth of a per cent.
const slots = 10_000

// outsideShare is why a rule with a bot is passed over.
const outsideShare = "percent"

// botAction gives callbacks to a bot of the configuration: all of them, or those
// of a share of the followers. The others go on to the rules behind, which are
// the new side of a cut-over.
type botAction struct {
	name  string
	share int  // of slots
	cuts  bool // the file gives a share: rules behind are the new side, also at 100 %
	salt  string
}

// takes reports whether the bot answers this follower. A follower's slot is
// fixed by account, openid and salt, and the bot has the slots below its share:
// while the share only falls (or only rises) each follower changes side at most
// once, on every node and after every restart.
func (b *botAction) takes(c *wire.Callback) bool {
	return b.share == slots || b.share > 0 && slotOf(c.Account, c.OpenID, b.salt) < b.share
}

func slotOf(account, openid, salt string) int {
	sum := sha256.Sum256([]byte(account + "\x00" + openid + "\x00" + salt))
	return int(binary.BigEndian.Uint64(sum[:]) % slots)
}

// shareOf turns a per cent into slots.
func shareOf(percent float64) (int, bool) {
	share := math.Round(percent * slots / 100)
	return int(share), percent >= 0 && percent <= 100 && math.Abs(share-percent*slots/100) < 1e-6
}

// takesAll reports whether nothing that the rule matches will ever go on behind
// it.
func (u *rule) takesAll() bool { return u.bot == nil || !u.bot.cuts }

// Bots lists the names of the bots that rules ask, each once, in order of
// appearance.
func (r *Rules) Bots() []string {
	return r.names(func(u *rule) string {
		if u.bot == nil {
			return ""
		}
		return u.bot.name
	})
}

// Share is how many per cent of the followers of its accounts a rule leaves to
// a bot.
type Share struct {
	Rule, Bot string
	Percent   float64
}

// Shares lists the rules with a bot, in the order of the file.
func (r *Rules) Shares() []Share {
	var out []Share
	for _, u := range r.list {
		if u.bot != nil {
			out = append(out, Share{u.name, u.bot.name, float64(u.bot.share) * 100 / slots})
		}
	}
	return out
}

// WithShare gives the same rules, where the bot of the named rule answers
// another per cent of the followers.
func (r *Rules) WithShare(name string, percent float64) (*Rules, error) {
	share, ok := shareOf(percent)
	if !ok {
		return nil, fault.New(fault.Invalid, "set share", "%v per cent: use 0 to 100 with at most two decimals", percent)
	}
	for i, u := range r.list {
		if u.name != name || u.bot == nil {
			continue
		}
		out, changed, bot := *r, *u, *u.bot
		bot.share, changed.bot = share, &bot
		out.list = append([]*rule(nil), r.list...)
		out.list[i], out.byName = &changed, maps.Clone(r.byName)
		out.byName[name] = &changed
		return &out, nil
	}
	return nil, fault.New(fault.NotFound, "set share", "there is no rule %q with a bot", fmt.Sprintf("%.64s", name))
}
