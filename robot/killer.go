package robot

import (
	"context"
	"fmt"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
	"tidegate/robot/suspect"
)

// maxAhead bounds the records between the committed offset and the newest begun
// one: what a crash may repeat, and what it may have been the fault of (D13).
const maxAhead = 10_000

// begin takes a callback in hand, so that it is known if this process dies with
// it: behind its permit, and before anything that can last or grow with what it
// says – templates, engines, back ends. Its letter has been read and its rule
// looked up before that. Whoever was in hand at a death before waits until it is
// alone; to wait for that is no sign of trouble, and a stop ends it soon.
func (r *Robot) begin(ctx context.Context, rec kafka.Record, hand *suspect.Hand) error {
	if r.suspects.Try(rec, hand) {
		return nil
	}
	kafka.Alive(ctx, kafka.AsLongAsItTakes)
	defer kafka.Alive(ctx, 0)
	return r.suspects.Begin(kafka.Open(ctx), rec, hand)
}

// careful are permits that hardly move while suspects are worked alone. That says
// nothing about how many there are, and is no overload.
type careful struct {
	permits
	suspects *suspect.Book
}

// Paused implements rests.
func (c careful) Paused() bool { return c.suspects.Shut() || rests(c.permits) }

// killer is the verdict on a callback that processes die of. Its letter could be
// read each time, so its follower can be told something.
func (r *Robot) killer(deaths int) verdict {
	rules := *r.rules.Load()
	d := engine.Decision{Fallback: rules.Fallback(), Class: wire.PreferDuplicate, ValidFor: engine.DefaultValidFor}
	v := failed(d, wire.Dead, "killed", fmt.Sprintf("%d robots in a row died while it was in hand, the last one with nothing else in hand", deaths))
	v.dead = v.reason
	return v
}
