package proxy

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/wire"
	"tidegate/proxy/spool"
)

// drainPatience is how long Drain goes on without the queue taking anything.
const drainPatience = 30 * time.Second

// Drained is what became of a spool that was emptied by hand.
type Drained struct {
	Replayed    uint64 // records that the queue has now, dead letters among them
	DeadLetters uint64
	Parked      uint64 // files in the directory that a human has to look at
	Left        int64  // records still in the spool
}

// Drain empties the spool of a node that is gone into the queue, in order per
// key. It returns when the spool is empty, when ctx ends, or when the queue has
// taken nothing for 30 s; what is left stays, and Drain can be called again.
func Drain(ctx context.Context, dir string, pub Publisher, topics wire.Topics, log *zap.Logger) (Drained, error) {
	s, err := spool.Open(spool.Options{Dir: dir, MaxBytes: math.MaxInt64 / 2, SegmentBytes: 64 << 20, Log: log})
	if err != nil {
		return Drained{}, err
	}
	var letters atomic.Uint64
	err = drain(ctx, s, replayer(pub, topics, time.Now, func() { letters.Add(1) }))
	st := s.Stats()
	d := Drained{Replayed: st.Replayed, DeadLetters: letters.Load(), Parked: st.Bad, Left: s.Depth().Records}
	if e := s.Close(); err == nil {
		err = e
	}
	if err != nil {
		err = fmt.Errorf("drain spool %s: %d records are left: %w", dir, d.Left, err)
	}
	return d, err
}

func drain(ctx context.Context, s *spool.Spool, publish spool.Publish) error {
	pause, since := replayMin, time.Now()
	for {
		before := s.Stats().Replayed
		err := s.Replay(ctx, publish)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if s.Stats().Replayed > before {
			pause, since = replayMin, time.Now()
		}
		if time.Since(since) > drainPatience {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		pause = min(2*pause, replayMax)
	}
}
