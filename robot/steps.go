package robot

import (
	"strconv"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
)

// What became of a callback before its receipt has no letters of its own: the
// receipt carries it, so that one question shows the whole way.

// called is the step of one question to a system behind the robot. It has no word
// of what was asked or answered.
func (r *Robot) called(began time.Time, whom string, err error) wire.Step {
	result := "answered"
	if err != nil {
		result = "failed (" + fault.KindOf(err).String() + ")"
	}
	took := r.d.Now().Sub(began).Milliseconds()
	return wire.Step{At: wire.Millis(began), Room: wire.FromRobot, What: "called", Detail: whom + " " + result + " after " + strconv.FormatInt(took, 10) + " ms"}
}

// way is what happened to a callback until the robot had it, and the calls that
// the robot made.
func (o *outcome) way(buffer []wire.Step, calls []wire.Step) []wire.Step {
	c := o.callback
	claim := "claimed"
	if c.Unchecked {
		claim = "unclaimed: Redis was away"
	}
	if c.ReceivedAt > 0 {
		buffer = append(buffer, wire.Step{At: c.ReceivedAt, Room: wire.FromDoor, What: "received", Detail: claim})
	}
	var text [24 + 2*20]byte
	place := strconv.AppendInt(append(text[:0], "partition "...), int64(o.rec.Partition), 10)
	place = strconv.AppendInt(append(place, " offset "...), o.rec.Offset, 10)
	at := c.ReceivedAt
	if !o.rec.Timestamp.IsZero() {
		at = wire.Millis(o.rec.Timestamp)
	}
	buffer = append(buffer, wire.Step{At: at, Room: wire.FromDoor, What: "queued", Detail: string(place)})
	return append(buffer, calls...)
}
