package engine

import (
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// bot reads which bot answers, and for whom: a name alone is everybody.
func (r *reader) bot(n *yaml.Node, u *rule, of string, known Known) {
	subject := of + "bot"
	b := &botAction{share: slots}
	u.bot = b
	at := n
	if n.Kind == yaml.MappingNode {
		f := r.mapping(n, subject, "name", "percent", "accounts", "salt")
		if at = f["name"]; at == nil {
			r.fail(n, "%s: name is missing: name a back end of type wechat (%s)", subject, listOr(known.Bots, "robot.backends"))
			return
		}
		if p := f["percent"]; p != nil {
			b.cuts = true
			b.share = r.percent(p, subject+": percent")
		}
		if s := f["salt"]; s != nil {
			if b.salt, _ = r.text(s, subject+": salt"); len(b.salt) > 64 {
				r.fail(s, "%s: salt: use up to 64 characters", subject)
			}
		}
		r.botAccounts(f["accounts"], u, subject, known)
	}
	if b.name, _ = r.text(at, subject+": name"); !backendName.MatchString(b.name) {
		r.fail(at, "%s: use a name, not an address; addresses belong to the configuration (robot.backends)", subject)
	} else if known.Bots != nil && !contains(known.Bots, b.name) {
		r.fail(at, "%s: there is no back end %q of type wechat: configured are %s", subject, b.name, listOr(known.Bots, "none"))
	}
	if b.salt == "" {
		// Rules that ask the same bot divide the followers in the same way.
		b.salt = b.name
	}
}

// botAccounts narrows the rule to some accounts; the others go on to the next
// rules, as they do where the rule itself names accounts.
func (r *reader) botAccounts(n *yaml.Node, u *rule, subject string, known Known) {
	switch {
	case n == nil:
	case u.accounts != nil:
		r.fail(n, "%s: accounts: the rule has accounts already: keep one of them", subject)
	default:
		u.accounts = r.accounts(n, subject+": ", known)
	}
}

func (r *reader) percent(n *yaml.Node, subject string) int {
	s, _ := r.text(n, subject)
	p, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	share, ok := shareOf(p)
	if err != nil || !ok {
		r.fail(n, "%s: write how many per cent of the followers the bot answers, 0 to 100 with at most two decimals", subject)
		return 0
	}
	return share
}
