package proxy

import (
	"context"
	"time"

	"tidegate/pkg/crash"
	"tidegate/pkg/dedupe"
	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// flight is the short way of a callback: its record is ready before it is
// claimed, and goes to the queue from the goroutine that hears of the claim. The
// handler wakes once, when the queue has it. Whatever is not smooth (a repeat
// rule to ask, a spool that holds the user, Redis or Kafka that do not answer)
// goes the long way, from where the short one ended.
type flight struct {
	out   *outlet
	rec   kafka.Record
	ended chan struct{}
	// The rest may be read once ended has given its token.
	err   error
	began time.Time
}

// fly makes a flight ready; nil if this callback goes the long way.
func (p *Proxy) fly(topic string, c *wire.Callback) *flight {
	if p.out.direct == nil || c.Quarantined != "" || p.repeats.rule(c) != nil {
		return nil
	}
	key, value, headers, err := wire.Encode(c)
	if err != nil {
		return nil // the long way says what is wrong
	}
	return &flight{
		out: p.out, ended: make(chan struct{}, 1),
		rec: kafka.Record{Topic: topic, Key: key, Value: value, Headers: headers},
	}
}

func (f *flight) onward() dedupe.Onward { return dedupe.Onward{Start: f.start, Ended: f.ended} }

func (f *flight) start() {
	crash.At("CP2")
	f.began = f.out.now()
	if err := f.out.try(f.rec, f.end); err != nil {
		f.end(f.rec, err)
	}
}

func (f *flight) end(_ kafka.Record, err error) {
	f.err = err
	f.ended <- struct{}{} // has room: it ends once
}

// land waits for the end where it is still to come, and makes the record durable
// if the queue has not. since is when that was begun.
func (f *flight) land(ctx context.Context, ended bool) (since time.Time, err error) {
	if !ended {
		since = f.out.now()
		err = f.await(ctx)
	}
	if err == nil {
		since, err = f.began, f.err
	}
	switch {
	case err == nil:
		return since, nil
	case isNotTried(err):
		return since, f.out.put(ctx, f.rec)
	}
	return since, f.out.elsewhere(ctx, f.rec, err)
}

func (f *flight) await(ctx context.Context) error {
	t := time.NewTimer(f.out.limit(ctx))
	defer t.Stop()
	select {
	case <-f.ended:
		return nil
	case <-t.C:
		return fault.New(fault.Ambiguous, "publish to "+f.rec.Topic, "the record is under way and has no result yet: %w", context.DeadlineExceeded)
	}
}
