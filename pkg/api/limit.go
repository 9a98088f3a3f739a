package api

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// OverLimit is a call refused by an SLA; it lies in the chain of a fault of kind
// Limited.
type OverLimit struct {
	Status int // 403 or 429
	Quota  Quota
	Wait   time.Duration // until it would fit; negative: it never does
}

// Quota is a limit and where a caller stands in it.
type Quota struct {
	Scope       string
	Limit, Used int64
	Period      time.Duration
}

// Error says which limit it is, and how long it holds.
func (o *OverLimit) Error() string {
	return fmt.Sprintf("the limit of %d in %s for this %s is used up", o.Quota.Limit, o.Quota.Period, o.Quota.Scope)
}

// tell puts the refusal into a problem.
func (o *OverLimit) tell(p *Problem) {
	p.Status, p.Errcode = o.Status, "over_limit"
	p.Scope, p.Limit, p.Period, p.Used = o.Quota.Scope, o.Quota.Limit, o.Quota.Period.String(), o.Quota.Used
	if o.Wait < 0 {
		p.Do = "It costs more than the limit: make it smaller, or ask the operator for a higher limit."
		return
	}
	p.RetryAfterMS = max(1, int64(math.Ceil(float64(o.Wait)/float64(time.Millisecond))))
	p.Do = "It was not counted. Wait as long as retry_after_ms says, then send the same request again."
}

// WriteQuota says where a caller stands, in the headers RateLimit-Limit, -Remaining
// and -Reset: seconds until all of the limit is free again at the latest.
func WriteQuota(h http.Header, q Quota) {
	if q.Limit <= 0 {
		return
	}
	h.Set("RateLimit-Limit", strconv.FormatInt(q.Limit, 10))
	h.Set("RateLimit-Remaining", strconv.FormatInt(max(0, q.Limit-q.Used), 10))
	h.Set("RateLimit-Reset", strconv.FormatInt(int64(math.Ceil(q.Period.Seconds())), 10))
}
