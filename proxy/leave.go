package proxy

import (
	"context"
	"time"
)

const (
	// leaveWithin bounds how long a door that is to stop goes on serving, so that
	// its spool is empty when its users go to the next door.
	leaveWithin = 2 * time.Second
	// leaveIdle is how long it waits for a queue that takes nothing.
	leaveIdle = 300 * time.Millisecond
	// leaveLook is the pause between two looks.
	leaveLook = 10 * time.Millisecond
)

// leave serves until ctx ends, and then a little longer while the queue takes what
// is in the spool: a user who is sent to the next door before his last callback is
// in the queue would overtake himself (D12). While the queue is away nothing helps,
// and the door does not wait.
func (p *Proxy) leave(ctx, rear context.Context, serve func(context.Context) error) error {
	serving, gone := context.WithCancel(rear)
	defer gone()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
			p.out.handOver(rear)
			gone()
		case <-serving.Done():
		}
	}()
	err := serve(serving)
	gone()
	<-done
	p.out.handOver(rear) // what came while the last requests were answered
	return err
}

// handOver waits until the spool is empty, as long as that gets on.
func (o *outlet) handOver(ctx context.Context) {
	if o.spool == nil || o.spool.Depth().Records == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	select {
	case o.hurry <- struct{}{}:
	default:
	}
	t := time.NewTicker(leaveLook)
	defer t.Stop()
	replayed, since := o.spool.Stats().Replayed, time.Now()
	for o.spool.Depth().Records > 0 {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if n := o.spool.Stats().Replayed; n > replayed {
			replayed, since = n, time.Now()
		} else if time.Since(since) > leaveIdle {
			return
		}
	}
}
