package kafka

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// maxDump bounds the goroutine dump that is logged at debug level.
const maxDump = 256 << 10

// Stall is what a member that leaves its group by itself tells.
type Stall struct {
	Partitions []StalledPartition // sorted
	Handlers   int                // calls without a sign of life
	Silent     time.Duration      // how long the longest of them has run
}

// StalledPartition is one that cannot be finished because of silent handlers.
type StalledPartition struct {
	Topic     string
	Partition int32
	Offset    int64 // of the first record whose handler is silent
	Handlers  int
}

func (s Stall) String() string {
	var b strings.Builder
	for i, p := range s.Partitions {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s/%d at offset %d", p.Topic, p.Partition, p.Offset)
	}
	return b.String()
}

func stallOf(calls []*call, now int64) Stall {
	s := Stall{Handlers: len(calls)}
	for _, c := range calls {
		s.Silent = max(s.Silent, time.Duration(now-c.began))
		i := slices.IndexFunc(s.Partitions, func(p StalledPartition) bool {
			return p.Topic == c.claim.topic && p.Partition == c.claim.partition
		})
		if i < 0 {
			s.Partitions = append(s.Partitions, StalledPartition{Topic: c.claim.topic, Partition: c.claim.partition, Offset: c.offset, Handlers: 1})
			continue
		}
		p := &s.Partitions[i]
		p.Offset, p.Handlers = min(p.Offset, c.offset), p.Handlers+1
	}
	slices.SortFunc(s.Partitions, func(a, b StalledPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return s
}

// startWatch runs the watch for one Run.
func (g *Group) startWatch() (stop func()) {
	w := g.sched.watch
	every := min(500*time.Millisecond, time.Duration(w.limit)/8)
	return w.run(every, g.opt.StallAfter, g.stall)
}

// beginSession gives the context of one session; ended must be called after it.
// It has ended already if the member is to leave.
func (g *Group) beginSession(ctx context.Context) (_ context.Context, ended func()) {
	ctx, end := context.WithCancelCause(ctx)
	g.mu.Lock()
	g.end = end
	g.mu.Unlock()
	if g.stalled.Load() {
		end(errStalled)
	}
	return ctx, func() {
		g.mu.Lock()
		g.end = nil
		g.mu.Unlock()
		end(nil)
	}
}

// endSession ends the present session, if there is one, and tells first.
func (g *Group) endSession(why error, tell func()) {
	g.mu.Lock()
	end := g.end
	g.end = nil
	g.mu.Unlock()
	if end != nil {
		tell()
		end(why)
	}
}

// freeze takes everything away from this member: it stood still, and cannot
// know what the group did meanwhile. It joins again.
func (g *Group) freeze(gap time.Duration) {
	g.sched.cutOff(nil)
	g.endSession(errFrozen, func() {
		g.met.frozen.Inc()
		g.log.Warn("the process stood still for about as long as a session lasts, giving its partitions up and joining again",
			zap.Duration("stood_still", gap), zap.Duration("session_timeout", g.opt.SessionTimeout))
		if g.opt.OnFreeze != nil {
			g.opt.OnFreeze(gap)
		}
		g.resuming.Store(true)
	})
}

// stall makes the member leave: its silent handlers lose their partitions at
// once, the others get a moment to finish.
func (g *Group) stall(calls []*call) {
	if !g.stalled.CompareAndSwap(false, true) {
		return
	}
	s := stallOf(calls, g.sched.watch.now())
	g.met.stalls.Inc()
	g.log.Error("handlers show no sign of life, leaving the group so that others work its partitions",
		zap.Int("handlers", s.Handlers), zap.Stringer("partitions", s), zap.Duration("running_for", s.Silent))
	if g.log.Core().Enabled(zap.DebugLevel) {
		dump := make([]byte, maxDump)
		g.log.Debug("goroutines", zap.ByteString("stacks", dump[:runtime.Stack(dump, true)]))
	}
	if g.opt.OnStall != nil {
		g.opt.OnStall(s)
	}
	g.sched.cutOff(calls)
	g.endSession(errStalled, func() {})
}

// awaitHandlers waits, outside the group, until the last handler has returned.
// The error says that this did not happen in time.
func (g *Group) awaitHandlers(ctx context.Context) error {
	late := time.NewTimer(g.opt.GiveUpAfter)
	defer late.Stop()
	tick := time.NewTicker(g.opt.StallAfter / looks)
	defer tick.Stop()
	for {
		calls := g.sched.watch.calls()
		if len(calls) == 0 {
			g.stalled.Store(false)
			g.resuming.Store(true)
			g.log.Info("the silent handlers have returned, joining the group again")
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // Run waits for them as always
		case <-tick.C:
		case <-late.C:
			s := stallOf(calls, g.sched.watch.now())
			return fault.New(fault.Internal, "run group "+g.opt.Group,
				"%d handlers have not returned for up to %s (%s), nor in the %s since the group was left: they never will, and only a new process can go on; restart it, and report what the log says",
				s.Handlers, s.Silent.Round(time.Second), s, g.opt.GiveUpAfter)
		}
	}
}

// resumed is called when a session begins.
func (g *Group) resumed() {
	if g.resuming.CompareAndSwap(true, false) && g.opt.OnResume != nil {
		g.opt.OnResume()
	}
}
