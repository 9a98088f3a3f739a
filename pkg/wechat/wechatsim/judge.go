package wechatsim

import (
	"cmp"
	"slices"
	"sync"
)

// Judge folds journal entries, in order, into a Verdict. It knows nothing but
// entries, so a kept journal can be judged again elsewhere.
//
// Definitions. A cause is one mark: the callback that carries it and the user's
// own repeats of it. A cause is acked when any delivery of any of its callbacks
// was accepted. It wants its number of replies once; each further callback with
// the same mark allows, but does not ask for, as many more.
type Judge struct {
	mu    sync.Mutex
	limit int

	v        Verdict
	causes   map[string]*cause
	open     map[uint64]*openCallback
	users    map[string]*userFold
	waiting  map[*cause]struct{}
	pushes   map[string]int
	expected map[string]*expectedPush
	ackTimes []uint32 // microseconds
}

// cause is what the judge remembers of one mark.
type cause struct {
	token, account, openid string
	seq                    uint64
	wants, callbacks       int
	created, acked         int64 // its first callback came into being; first ack
	raw, visible           int
	effect                 int64 // first visible reply
	noticed, refused       bool
	fate                   fate
}

// openCallback is one callback whose tries are not over.
type openCallback struct {
	cause   *cause
	receipt bool
	tries   int // that were really sent
	acked   bool
}

// userFold is what the judge remembers of one follower.
type userFold struct {
	untracked int
	// latestAnswered is the latest creation time among causes with an effect.
	latestAnswered int64
}

type expectedPush struct {
	account, openid string
	seq             uint64
	at              int64
	visible         int
}

// NewJudge makes a judge that follows at most limit causes and pushes.
func NewJudge(limit int) *Judge {
	j := &Judge{
		limit:    limit,
		causes:   map[string]*cause{},
		open:     map[uint64]*openCallback{},
		users:    map[string]*userFold{},
		waiting:  map[*cause]struct{}{},
		pushes:   map[string]int{},
		expected: map[string]*expectedPush{},
	}
	j.v.Callbacks.Answers = map[string]int64{}
	j.v.API = map[string]APIUsage{}
	return j
}

// maxReserve is what Full holds back for callbacks that begin at the same time.
const maxReserve = 10_000

// Full tells that no further cause should be begun. A reserve is held back for
// those that begin while somebody asks, and for the pushes that may follow.
func (j *Judge) Full() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.followed() >= j.limit-min(j.limit/2, maxReserve)
}

func (j *Judge) full() bool { return j.followed() >= j.limit }

func (j *Judge) followed() int { return len(j.causes) + len(j.pushes) + len(j.expected) }

// Add takes the next entry into account.
func (j *Judge) Add(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch e.Kind {
	case KindStimulus:
		j.addStimulus(e)
	case KindDelivery:
		j.addDelivery(e)
	case KindSettled:
		j.addSettled(e)
	case KindArrival:
		j.addArrival(e)
	case KindExpect:
		j.addExpect(e)
	case KindNote:
	}
}

func (j *Judge) addStimulus(e Entry) {
	u := j.user(e)
	o := &openCallback{receipt: isReceipt(e.What)}
	j.open[e.Stimulus] = o
	if o.receipt {
		j.v.Receipts.Due++
		return
	}
	j.v.Callbacks.Sent++
	if e.RepeatOf != 0 {
		j.v.Callbacks.UserRepeats++
	}
	if len(e.Tokens) == 0 {
		u.untracked++
		return
	}
	c := j.causes[e.Tokens[0]]
	if c == nil {
		if j.full() {
			j.v.Journal.Unfollowed++
			u.untracked++
			return
		}
		c = &cause{token: e.Tokens[0], account: e.Account, openid: e.OpenID, seq: e.Seq, wants: e.Wants, created: e.At}
		j.causes[c.token] = c
	}
	c.callbacks++
	o.cause = c
}

func (j *Judge) addDelivery(e Entry) {
	o := j.open[e.Stimulus]
	if o == nil {
		return
	}
	if e.Judged == JudgedSkipped {
		return
	}
	o.tries++
	if !o.receipt {
		j.countTry(o, e)
	}
	if !accepted(e.Judged) {
		return
	}
	if !o.acked {
		o.acked = true
		j.firstAck(o, e)
	}
	if e.Judged == JudgedPassive && o.cause != nil {
		j.passive(o.cause, e)
	}
}

func (j *Judge) countTry(o *openCallback, e Entry) {
	c := &j.v.Callbacks
	c.Deliveries++
	c.Answers[e.Judged]++
	if o.tries > 1 {
		c.Repeats++
		if o.acked {
			c.RepeatsAfterAck++
		}
	}
}

func (j *Judge) firstAck(o *openCallback, e Entry) {
	if o.receipt {
		j.v.Receipts.Delivered++
		return
	}
	j.v.Callbacks.Acked++
	j.ackTimes = append(j.ackTimes, uint32(min((e.Answered-e.Sent)/1000, 1<<32-1)))
	c := o.cause
	if c == nil || c.acked != 0 {
		return
	}
	c.acked = e.Answered
	if c.wants > 0 {
		j.v.Replies.Expected++
		c.fate = waiting
		j.waiting[c] = struct{}{}
		switch { // what came before the ack was known
		case c.visible >= c.wants || c.noticed:
			j.settle(c, answered)
		case c.refused:
			j.settle(c, refused)
		}
	}
}

func (j *Judge) addSettled(e Entry) {
	o := j.open[e.Stimulus]
	if o == nil {
		return
	}
	delete(j.open, e.Stimulus)
	switch {
	case o.receipt:
		if !o.acked {
			j.v.Receipts.Refused++
		}
	case o.acked:
	case o.tries > 0:
		j.v.Callbacks.Refused++
		j.v.Callbacks.ErrorsShown++
	default:
		j.v.Callbacks.Skipped++
	}
}

func (j *Judge) user(e Entry) *userFold {
	key := userKey(e)
	u := j.users[key]
	if u == nil {
		u = &userFold{}
		j.users[key] = u
	}
	return u
}

func userKey(e Entry) string { return e.Account + "\x00" + e.OpenID }

// unsettled lists callbacks whose tries are not over, oldest first.
func (j *Judge) unsettled() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []Entry
	for id, o := range j.open {
		out = append(out, Entry{Kind: KindSettled, Stimulus: id, Acked: o.acked})
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Stimulus, b.Stimulus) })
	return out
}
