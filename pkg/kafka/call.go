package kafka

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// call is one run of a handler, and the context that the handler gets. Its fields
// but quiet are written before the handler begins.
type call struct {
	context.Context // of the claim
	tries           int
	first           time.Time // first try of the record
	claim           *claim
	offset          int64 // of the first record
	began           int64 // on the watch's clock
	// quiet is the moment, on the watch's clock, up to which the handler may be
	// silent without being suspected.
	quiet atomic.Int64
	watch *watch
}

type callKey struct{}

// Value gives the call itself to those who ask for it below.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// Attempt tells a handler how often this record has been tried by this member,
// 1 for the first time, and when the first try began. Outside a handler: 0.
func Attempt(ctx context.Context) (n int, first time.Time) {
	if c := callOf(ctx); c != nil {
		return c.tries, c.first
	}
	return 0, time.Time{}
}

// AsLongAsItTakes is for a wait whose end is somebody else's to bring about,
// such as a place in a line for permits.
const AsLongAsItTakes time.Duration = math.MaxInt64

// Alive is a handler's sign of life: a step is done, and the next one may
// legally take so long before the handler is suspected (GroupOptions.StallAfter
// begins only then). A handler that waits for a back end within a deadline, or
// in a line, says so and is not taken for one that hangs. It costs a look into
// the context and one atomic store; outside a handler it does nothing.
func Alive(ctx context.Context, within time.Duration) {
	c := callOf(ctx)
	if c == nil {
		return
	}
	until := c.watch.now() + int64(within)
	if within > 0 && until < 0 { // AsLongAsItTakes, and whatever else overflows
		until = math.MaxInt64
	}
	c.quiet.Store(until)
}

// Owned tells a handler whether its record's partition still belongs to this
// member, as far as that can be known here: call it right before each effect.
// An error means that somebody else may be at work on the record already, and
// that the context of the handler has ended.
//
// It knows of a lost partition, and of a process that stood still (SIGSTOP, a
// frozen machine) for so long that the group may have gone on without it, before
// the coordinator has said so. An effect that was under way when the process
// stood still is not held back; what receives it must know it by its identity.
func Owned(ctx context.Context) error {
	if c := callOf(ctx); c != nil {
		c.watch.beat()
	}
	return context.Cause(ctx)
}

// Open gives a context that ends when nothing more may be begun in the partition
// of a handler's record, at the latest with the handler's own. Whoever only waits
// for a turn gives up then: when a partition is taken away that is before the time
// to drain is over, and not at once, since the wait may be for a record that
// others, finished ones, lie behind. Outside a handler it is ctx.
func Open(ctx context.Context) context.Context {
	if c := callOf(ctx); c != nil {
		return c.claim.open
	}
	return ctx
}
