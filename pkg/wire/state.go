package wire

// State is where a message stands. The ranks decide every join: news of a
// lower or equal rank never moves a row, so events in any order, repeated or
// late, end in the same state (D10, G20).
type State string

// The states of messages.
const (
	Queued           State = "queued"
	Held             State = "held"
	Sending          State = "sending"
	Accepted         State = "accepted" // WeChat took it
	Unknown          State = "unknown"  // may have been sent; terminal until evidence comes
	NoReceipt        State = "no_receipt"
	Delivered        State = "delivered"
	RefusedByUser    State = "refused_by_user"
	FailedByPlatform State = "failed_by_platform"
	Rejected         State = "rejected" // WeChat's answer was a final errcode; of a callback: refused because of overload
	Expired          State = "expired"
	Cancelled        State = "cancelled"
	Dead             State = "dead"
	Answered         State = "answered"     // of a callback: at least one reply was published, or the ack answered it
	NotAnswered      State = "not_answered" // of a callback: no rule wanted to answer
	Repeated         State = "repeated"     // of a callback: a user's repeat, acked and not worked
)

// Bucket is the term of the sum that a state counts under: accepted + refused
// + expired + dead + unknown + queued = intents (G30).
type Bucket string

// The buckets.
const (
	BucketQueued   Bucket = "queued"
	BucketAccepted Bucket = "accepted"
	BucketRefused  Bucket = "refused"
	BucketExpired  Bucket = "expired"
	BucketDead     Bucket = "dead"
	BucketUnknown  Bucket = "unknown"
)

// StateInfo is one line of the table.
type StateInfo struct {
	State    State
	Rank     int
	Terminal bool // no further news is expected
	Bucket   Bucket
	Failure  bool // belongs into the report of failures
}

// no_receipt ranks below the other ends: it says that nothing came, so a
// receipt that does come later is evidence and wins.
var states = [...]StateInfo{
	{Queued, 10, false, BucketQueued, false},
	{Held, 20, false, BucketQueued, false},
	{Sending, 30, false, BucketQueued, false},
	{Accepted, 40, false, BucketAccepted, false},
	{Unknown, 50, true, BucketUnknown, true},
	{NoReceipt, 60, true, BucketAccepted, true},
	{Delivered, 70, true, BucketAccepted, false},
	{RefusedByUser, 70, true, BucketRefused, true},
	{FailedByPlatform, 70, true, BucketRefused, true},
	{Rejected, 70, true, BucketRefused, true},
	{Expired, 70, true, BucketExpired, true},
	{Cancelled, 70, true, BucketRefused, true},
	{Dead, 70, true, BucketDead, true},
	{Answered, 70, true, BucketAccepted, false},
	{NotAnswered, 70, true, BucketAccepted, false},
	{Repeated, 70, true, BucketAccepted, false},
}

// States lists the whole table, in rank order.
func States() []StateInfo { return append([]StateInfo(nil), states[:]...) }

// Info finds a state's line; ok is false for a state that this release does
// not know.
func (s State) Info() (info StateInfo, ok bool) {
	for _, i := range states {
		if i.State == s {
			return i, true
		}
	}
	return StateInfo{}, false
}

// Rank is the state's rank, 0 if unknown.
func (s State) Rank() int { i, _ := s.Info(); return i.Rank }

// Terminal reports whether no further news is expected.
func (s State) Terminal() bool { i, _ := s.Info(); return i.Terminal }

// Move is the join of two states of one message: what a row in state cur
// becomes on news of state next. contradicts is true when both are ends of
// equal rank and differ: the first wins and the row is flagged (wechat.md
// 5.3).
func Move(cur, next State) (result State, contradicts bool) {
	c, n := cur.Rank(), next.Rank()
	switch {
	case n > c:
		return next, false
	case n == c && cur != next && cur.Terminal():
		return cur, true
	}
	return cur, false
}
