package sender

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// station is one account at work: its roads, and a consumer group for each of
// its lanes.
type station struct {
	name  string
	roads []*road
	whole brake
	quiet atomic.Pointer[quiet]
	gate  *gate           // nil lets everything through
	gone  context.Context // ends when the account is taken away
	leave context.CancelFunc

	mu      sync.Mutex
	places  map[wechat.API]int
	workers map[string]int // by lane
	grown   chan struct{}  // closed and replaced when a lane needs more of them
}

var lanes = []string{wire.LaneReplies, wire.LaneRealtime, wire.LaneBulk}

func newStation(a Account, quota time.Duration, permits Permits, log *zap.Logger) *station {
	st := &station{name: a.Name, places: map[wechat.API]int{}, grown: make(chan struct{})}
	st.gone, st.leave = context.WithCancel(context.Background())
	for _, api := range []wechat.API{wechat.APICustomSend, wechat.APITemplateSend, wechat.APIBizSend} {
		st.places[api] = a.Limits.of(api).Concurrency
		st.roads = append(st.roads, newRoad(a.Name, api, a.Limits.of(api), &st.whole, quota, permits, log))
	}
	st.workers = workersFor(st.places)
	return st
}

// staff makes sure that an API's lanes have workers for so many places. A lane
// that has too few gets more: its consumers finish what is in hand and join
// again. Workers that are too many wait and cost nothing, so they stay.
func (st *station) staff(api wechat.API, places int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.places[api] = places
	more := false
	for lane, n := range workersFor(st.places) {
		more = more || n > st.workers[lane]
		st.workers[lane] = max(n, st.workers[lane])
	}
	if more {
		close(st.grown)
		st.grown = make(chan struct{})
	}
}

// size gives the workers by lane, and what is closed when they no longer do.
func (st *station) size() (workers map[string]int, grown <-chan struct{}) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return maps.Clone(st.workers), st.grown
}

func (st *station) road(api wechat.API) *road {
	for _, r := range st.roads {
		if r.api == api {
			return r
		}
	}
	panic("no road for " + string(api)) // parcels carry one of the three APIs
}

// eachBrake visits the brakes with the API's name, "" for the whole account.
func (st *station) eachBrake(fn func(api string, b *brake)) {
	fn("", &st.whole)
	for _, r := range st.roads {
		fn(string(r.api), &r.own)
	}
}

// problems says in words what is closed.
func (st *station) problems() []string {
	var out []string
	st.eachBrake(func(api string, b *brake) {
		why, detail, until := b.state()
		if why == causeNone {
			return
		}
		what := "account " + st.name
		if api != "" {
			what += " api " + api
		}
		out = append(out, fmt.Sprintf("%s: %s (%s), next probe %s", what, why, detail, until.UTC().Format(time.RFC3339)))
	})
	return out
}

// Workers of a group. Letters that wait occupy them, so there are more than
// places on the road; what they cannot take waits in the queue.
const (
	workersSpare = 32
	workersMost  = 512
	// drainTimeout lets a request under way (5 s) come back and be booked.
	drainTimeout = 8 * time.Second
)

func workersFor(places map[wechat.API]int) map[string]int {
	enough := func(places int) int { return min(places+workersSpare, workersMost) }
	pushes := enough(places[wechat.APITemplateSend] + places[wechat.APIBizSend])
	return map[string]int{wire.LaneReplies: enough(places[wechat.APICustomSend]), wire.LaneRealtime: pushes, wire.LaneBulk: pushes}
}

// consume runs the account's groups until ctx ends or the account is gone.
func (s *Sender) consume(ctx context.Context, st *station) error {
	s.serving.Add(1)
	defer s.serving.Add(-1)
	defer st.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(st.gone, cancel)()
	for {
		workers, grown := st.size()
		if err := s.consumeWith(ctx, st, workers, grown); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// consumeWith runs the groups with so many workers, until those are too few,
// ctx ends or one of the groups fails.
func (s *Sender) consumeWith(ctx context.Context, st *station, workers map[string]int, grown <-chan struct{}) error {
	var groups []*kafka.Group
	for _, lane := range lanes {
		g, err := s.newGroup(st, lane, workers[lane])
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() {
		defer cancel()
		select {
		case <-grown:
		case <-ctx.Done():
		}
	})
	for _, g := range groups {
		wg.Go(func() {
			if err := g.Run(ctx); err != nil {
				once.Do(func() { failed = err })
				cancel()
			}
		})
	}
	wg.Wait()
	return failed
}

func (s *Sender) newGroup(st *station, lane string, workers int) (*kafka.Group, error) {
	return kafka.NewGroup(s.kafka, kafka.GroupOptions{
		Group:        s.topics.SenderGroup(st.name, lane),
		Topics:       []string{s.topics.Lane(st.name, lane)},
		Workers:      workers,
		DrainTimeout: drainTimeout,
		OnRevoke:     s.memory.forget,
		Handler: func(ctx context.Context, r kafka.Record) error {
			return s.handle(ctx, st, lane, r)
		},
	}, s.log, s.reg)
}
