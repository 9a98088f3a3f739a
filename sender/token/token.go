package token

import (
	"context"
	"fmt"
	"time"
)

// Account is what the keeper must know to ask for a token.
type Account struct {
	Name   string
	AppID  string
	Secret string
}

// Token is an access token. Fence orders the refreshes of one account.
type Token struct {
	Value     string
	ExpiresAt time.Time
	Fence     int64
}

// String keeps the value out of logs and test output.
func (t Token) String() string {
	return fmt.Sprintf("token of %d bytes until %s", len(t.Value), t.ExpiresAt.Format(time.RFC3339))
}

// GoString keeps the value out of %#v as well.
func (t Token) GoString() string { return t.String() }

// Caller asks WeChat for a token by the stable_token call. An error is judged
// by Options.Judge.
type Caller interface {
	StableToken(ctx context.Context, appID, secret string, force bool) (value string, life time.Duration, err error)
}

// Verdict is what an error of the token call means.
type Verdict struct {
	// Stop is true when the account's configuration is wrong and no retry
	// can help until somebody changes something.
	Stop bool
	// Code is WeChat's errcode, 0 if there was none.
	Code int
	// Retry is how long to wait at least; 0 leaves it to the keeper.
	Retry time.Duration
}

// Ledger remembers what refreshes an account has used up.
type Ledger struct {
	RenewedAt int64  `json:"renewed_at"` // Unix milliseconds of the last call after a rejection or an expiry
	ForcedAt  int64  `json:"forced_at"`
	ForcedDay string `json:"forced_day"` // WeChat's day (UTC+8), 2006-01-02
	Forced    int    `json:"forced"`     // forced refreshes on that day
}

// beijing is WeChat's day; it has no summer time.
var beijing = time.FixedZone("UTC+8", 8*3600)

func dayOf(t time.Time) string { return t.In(beijing).Format(time.DateOnly) }

// wait is how much of an interval since a moment is left. A moment that lies
// in the future by more than the interval comes from a clock that is wrong
// and counts as long ago (G27).
func wait(now time.Time, since int64, interval time.Duration) time.Duration {
	if since == 0 {
		return 0
	}
	left := time.UnixMilli(since).Add(interval).Sub(now)
	if left > 2*interval {
		return 0
	}
	return max(left, 0)
}

// merge takes the more cautious view of two ledgers.
func (l Ledger) merge(o Ledger) Ledger {
	l.RenewedAt = max(l.RenewedAt, o.RenewedAt)
	l.ForcedAt = max(l.ForcedAt, o.ForcedAt)
	switch {
	case o.ForcedDay > l.ForcedDay:
		l.ForcedDay, l.Forced = o.ForcedDay, o.Forced
	case o.ForcedDay == l.ForcedDay:
		l.Forced = max(l.Forced, o.Forced)
	}
	return l
}

// used is the number of forced refreshes on the day of now.
func (l Ledger) used(now time.Time) int {
	if l.ForcedDay != dayOf(now) {
		return 0
	}
	return l.Forced
}
