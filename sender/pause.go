package sender

import "time"

// pause says how long a letter has to wait before its next try, and why. The
// zero pause is none. Whoever finds that a letter must wait gives one; what
// becomes of it is decided in one place (work).
type pause struct {
	wait time.Duration
	why  string // one of the reasons below
}

// Reasons to wait. They are metric labels, stand in receipts and in the rows of
// what is held, and operators filter by them: the set is closed and its words
// do not change.
const (
	whyRetry       = "retry"        // the last request failed in a way that may pass
	whyBreaker     = "breaker"      // WeChat does not answer properly: the API or account is closed
	whyTooFast     = "too_fast"     // WeChat said so; the rate is lowered
	whyQuota       = "quota"        // the day's quota of the API is used up
	whyStopped     = "stopped"      // WeChat refuses the account or API: a person must act
	whyToken       = "token"        // there is no access token
	whyPaused      = "paused"       // an operator's order
	whyNoView      = "no_view"      // the operators' orders cannot be read
	whyQuietHours  = "quiet_hours"  // the account sends nothing at this hour
	whyNotBefore   = "not_before"   // its sender asked for a later time
	whyTemplateCap = "template_cap" // the cap of its template is used up
	whyAppCap      = "app_cap"      // the cap of its application is used up
	whyUserCap     = "user_cap"     // its user has had enough for now
	whyDayQuota    = "day_quota"    // our own share of the day's quota is used up
	whyCredit      = "credit"       // until the user acts again
)

// closedFor is the pause of a letter that met a closed brake of its road.
func (r *road) closedFor(wait time.Duration) pause {
	if wait <= 0 {
		return pause{}
	}
	cause, _, _ := r.own.state()
	if c, _, _ := r.whole.state(); c != causeNone {
		cause = c // nothing of the account goes, whatever the API would take
	}
	return pause{wait, whyOf(cause)}
}

func whyOf(c cause) string {
	switch c {
	case causeFast:
		return whyTooFast
	case causeQuota:
		return whyQuota
	case causeStop:
		return whyStopped
	}
	return whyBreaker
}
