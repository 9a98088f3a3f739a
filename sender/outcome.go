package sender

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"tidegate/pkg/credit"
	"tidegate/pkg/fault"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// class is what one request came to. Everything that is decided about a
// message or a road is decided from it.
type class string

const (
	sent       class = "sent"        // WeChat took it
	unsure     class = "unsure"      // it may have arrived
	unsent     class = "unsent"      // it did not arrive, and the reason may pass
	badToken   class = "bad_token"   // the token was refused
	tooFast    class = "too_fast"    // a limit over a short time
	noQuota    class = "no_quota"    // the day's quota is used up
	apiStopped class = "api_stopped" // no right to this API
	stopped    class = "stopped"     // the account's configuration is wrong
	noUser     class = "no_user"     // not for this user, or not now
	noMessage  class = "no_message"  // this message is wrong and stays wrong
	noTemplate class = "no_template" // the template is wrong for everybody
)

// answer is what WeChat said to one request.
type answer struct {
	class class
	code  int
	msg   string // WeChat's words, without the id of the request
	msgID string
}

// codeUserLimits is one user's, unless it meets user after user.
const codeUserLimits = 50002

// classify reads the result of a send, by the account's policy.
func classify(do *policy, res wechat.SendResult, err error) answer {
	if err == nil {
		return answer{class: sent, msgID: res.MsgID}
	}
	var e *wechat.APIError
	if !errors.As(err, &e) {
		// The request could not be built: it will never be right.
		return answer{class: noMessage, msg: err.Error()}
	}
	a := answer{code: e.Code, msg: plain(e.Msg)}
	switch {
	case e.Code == 0 && e.Ambiguous:
		a.class = unsure
	case e.Code == 0:
		a.class = unsent // not sent, or refused by something in front of WeChat
	default:
		a.class = classes[do.of(e.Code, e.API)]
		if a.class == "" {
			a.class = noMessage
		}
	}
	return a
}

// classes translate wechat.md 6.1. Unknown codes and errors of ours are final
// for the message: they are not retried by themselves.
var classes = map[wechat.Action]class{
	wechat.ActionSuccess:     sent,
	wechat.ActionRetry:       unsure,
	wechat.ActionSlow:        tooFast,
	wechat.ActionRefresh:     badToken,
	wechat.ActionStopAccount: stopped,
	wechat.ActionStopAPI:     apiStopped,
	wechat.ActionIP:          stopped,
	wechat.ActionUser:        noUser,
	wechat.ActionWindow:      noUser,
	wechat.ActionRequest:     noMessage,
	wechat.ActionTemplate:    noTemplate,
	wechat.ActionQuota:       noQuota,
	wechat.ActionBug:         noMessage,
	wechat.ActionUnknown:     noMessage,
}

// plain cuts the request's id from WeChat's words, so that equal failures read
// equal in reports.
func plain(msg string) string {
	for _, mark := range []string{" rid:", " hint:", "rid:"} {
		if i := strings.Index(msg, mark); i >= 0 {
			msg = msg[:i]
		}
	}
	return strings.TrimSpace(msg)
}

// progress is what this process knows of a message between its tries.
type progress struct {
	begun    bool      // the intent is durable
	firstTry time.Time // of any process
	requests int       // that were begun here
	spent    int       // of them, those that count against MaxTries
	unsure   int       // requests, here or before, that may have arrived
	refused  int       // tokens refused since the last other answer
	part     int       // of its messages, the one that goes next
	last     class     // what its last request came to
	line     string    // by which that went
	ticket   credit.Ticket
	seeded   bool    // it has what the letter's past says
	ending   *ending // decided; its receipt is not durable yet
}

// ending is how a message ended.
type ending struct {
	receipt *wire.Receipt
	park    bool // keep the record as a dead letter as well
	reason  string
	written bool   // the store of intents knows it
	aside   *aside // it did not end: it waits in a row
}

// stale ends a message that must not be tried any more, whatever it waits for.
func stale(p *parcel, g *progress, r Retry, now time.Time) *ending {
	switch {
	case p.push() && g.unsure > 0 && !now.Before(g.firstTry.Add(r.SafeRepeat)):
		return end(p, g, wire.Unknown, "no answer, and WeChat may have forgotten the message's id", now)
	case !p.expires.IsZero() && !now.Before(p.expires):
		if g.unsure > 0 {
			return end(p, g, wire.Unknown, "no answer before it expired", now)
		}
		return end(p, g, wire.Expired, "expired before it could be sent", now)
	}
	return nil
}

// decide says what follows from an answer: an ending, or how long to wait
// before the next try. g counts the request already.
func decide(p *parcel, g *progress, a answer, r Retry, now time.Time) (*ending, time.Duration) {
	if a.class != badToken {
		g.refused = 0
	}
	spentBefore := g.spent
	switch a.class {
	case sent:
		if g.part+1 < p.parts {
			g.part++
			return nil, 0
		}
		e := end(p, g, wire.Accepted, "", now)
		e.receipt.MsgID = a.msgID
		return e, 0
	case unsure:
		g.spent++
		g.unsure++
		if e := doubtful(p, g, r, now); e != nil {
			return with(e, a), 0
		}
	case unsent:
		g.spent++
	case badToken:
		g.spent++
		g.refused++
		if g.refused <= 2 {
			return nil, 0 // the keeper has given another token
		}
	case noUser:
		if g.unsure > 0 {
			// The first try may have arrived and used up what this one lacks.
			return with(end(p, g, wire.Unknown, "refused after a try without an answer", now), a), 0
		}
		return with(end(p, g, wire.Rejected, "WeChat refuses it for this user", now), a), 0
	case noTemplate:
		return with(end(p, g, wire.Rejected, "WeChat refuses the template", now), a), 0
	case noMessage:
		return with(end(p, g, wire.Rejected, "WeChat refuses the message", now), a), 0
	}
	if g.spent >= r.MaxTries || g.spent > spentBefore && now.Sub(g.firstTry) > r.MaxAge {
		return with(exhausted(p, g, now), a), 0
	}
	return nil, backoff(g.spent, r)
}

// doubtful ends a message that may have arrived and must not go again.
func doubtful(p *parcel, g *progress, r Retry, now time.Time) *ending {
	switch {
	case p.push():
		return stale(p, g, r, now)
	case p.class == wire.PreferLoss:
		return end(p, g, wire.Unknown, "no answer; its class prefers a loss to a duplicate", now)
	case g.unsure > r.ReplyRepeats:
		return end(p, g, wire.Unknown, "no answer, also when it was sent again", now)
	}
	return nil
}

func exhausted(p *parcel, g *progress, now time.Time) *ending {
	if g.unsure > 0 {
		return end(p, g, wire.Unknown, "no answer until its tries were used up", now)
	}
	e := end(p, g, wire.Dead, "its tries were used up", now)
	e.park = true
	return e
}

func end(p *parcel, g *progress, state wire.State, reason string, now time.Time) *ending {
	r := p.receipt(state, now)
	if g.part > 0 && state != wire.Accepted {
		reason = fmt.Sprintf("only the first %d of %d messages went: %s", g.part, p.parts, reason)
	}
	r.Reason, r.Attempt, r.Line = reason, g.requests, g.line
	// A reply that may have arrived and went again may be there twice (G8).
	r.PossibleDuplicate = !p.push() && g.unsure > 0 && state == wire.Accepted || !p.push() && g.unsure > 1
	return &ending{receipt: r, reason: reason}
}

// with adds WeChat's own words.
func with(e *ending, a answer) *ending {
	e.receipt.ErrCode = a.code
	if a.msg != "" {
		e.receipt.Detail = a.msg
	}
	return e
}

// backoff draws the pause before the next try: full jitter below a bound that
// doubles (T42).
func backoff(spent int, r Retry) time.Duration {
	bound := min(r.First<<min(max(spent-1, 0), 20), r.Last)
	return rand.N(bound) + time.Millisecond
}

// retryAfter is an error's own hint, or a default.
func retryAfter(err error, otherwise time.Duration) time.Duration {
	if d := fault.RetryAfter(err); d > 0 {
		return d
	}
	return otherwise
}
