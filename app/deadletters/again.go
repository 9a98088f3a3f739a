package deadletters

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// replyLife is how long after a user's message WeChat takes replies.
const replyLife = 48 * time.Hour

// Reasons to leave a dead letter out. They are few and fixed, so that they can
// be counted.
var (
	errEmpty       = errors.New("the letter does not hold its record")
	errUnreadable  = errors.New("this release cannot read the record either")
	errStrange     = errors.New("the record contradicts itself or its topic")
	errQuarantined = errors.New("quarantined: nobody knows whose it is")
	errExpired     = errors.New("expired: WeChat or its sender wants it no more")
	errOther       = errors.New("records of this topic are not replayed")
)

// again makes the record that a replay publishes: the letter under a new
// identity. The same letter and attempt give the same record, apart from times.
func (l *Letter) again(topics wire.Topics, attempt int, now time.Time) (rec kafka.Record, id string, err error) {
	if len(l.Value) == 0 {
		return rec, "", errEmpty
	}
	var anew wire.Letter
	switch {
	case l.Topic == topics.Receipts() || l.Topic == topics.Repeats():
		// News are joined by what they say: to tell them again does no harm.
		return kafka.Record{Topic: l.Topic, Key: l.Key, Value: l.Value, Headers: l.Headers}, l.ID, nil
	case l.Account == "" || topics.Account(l.Topic) != l.Account:
		return rec, "", errOther
	case l.Topic == topics.Callbacks(l.Account):
		anew, err = l.callback(attempt, now)
	case l.Topic == topics.Replies(l.Account):
		anew, err = l.reply(attempt, now)
	case l.Topic == topics.Pushes(l.Account, wire.LaneRealtime) || l.Topic == topics.Pushes(l.Account, wire.LaneBulk):
		anew, err = l.push(attempt, now)
	default:
		return rec, "", errOther
	}
	if err != nil {
		return rec, "", err
	}
	key, value, headers, err := wire.Encode(anew)
	if err != nil {
		return rec, "", errUnreadable
	}
	return kafka.Record{Topic: l.Topic, Key: key, Value: value, Headers: headers}, anew.LetterID(), nil
}

// identity is the new one.
func (l *Letter) identity(old string, attempt int) (id, hash string, err error) {
	h := idgen.HashOf("replay", old, l.name, strconv.Itoa(attempt))
	id, err = idgen.DeriveBeside(old, h)
	if err != nil {
		return "", "", errStrange
	}
	return id, h.String(), nil
}

func (l *Letter) fits(account, openid string) bool {
	return account == l.Account && wire.ValidOpenID(openid) && openid == string(l.Key)
}

func (l *Letter) callback(attempt int, now time.Time) (wire.Letter, error) {
	c, err := wire.Decode[wire.Callback](l.Value, l.Headers)
	switch {
	case err != nil:
		return nil, errUnreadable
	case c.Quarantined != "":
		return nil, errQuarantined
	case !l.fits(c.Account, c.OpenID):
		return nil, errStrange
	case c.ReceivedAt > 0 && now.Sub(time.UnixMilli(c.ReceivedAt)) >= replyLife:
		return nil, errExpired
	}
	if c.ReplayOf == "" {
		c.ReplayOf = c.ID
	}
	c.Identity += fmt.Sprintf("/replay/%s/%d", l.Name(), attempt)
	c.ID, c.IdentityHash, err = l.identity(c.ID, attempt)
	return c, err
}

func (l *Letter) reply(attempt int, now time.Time) (wire.Letter, error) {
	r, err := wire.Decode[wire.Reply](l.Value, l.Headers)
	switch {
	case err != nil:
		return nil, errUnreadable
	case !l.fits(r.Account, r.OpenID):
		return nil, errStrange
	case expired(r.ExpiresAt, now) || r.ReceivedAt > 0 && now.Sub(time.UnixMilli(r.ReceivedAt)) >= replyLife:
		return nil, errExpired
	}
	r.ResendOf = r.ID
	r.ID, r.IdentityHash, err = l.identity(r.ID, attempt)
	return r, err
}

func (l *Letter) push(attempt int, now time.Time) (wire.Letter, error) {
	p, err := wire.Decode[wire.Push](l.Value, l.Headers)
	switch {
	case err != nil:
		return nil, errUnreadable
	case !l.fits(p.Account, p.OpenID):
		return nil, errStrange
	case expired(p.ExpiresAt, now):
		return nil, errExpired
	}
	p.ResendOf, p.AcceptedAt = p.ID, wire.Millis(now)
	p.ID, p.IdentityHash, err = l.identity(p.ID, attempt)
	return p, err
}

func expired(at int64, now time.Time) bool { return at > 0 && !now.Before(time.UnixMilli(at)) }
