package sender

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// station is one account at work: its roads, and a consumer group for each of
// its lanes.
type station struct {
	account Account
	roads   []*road
	whole   brake
	gone    context.Context // ends when the account is taken away
	leave   context.CancelFunc
}

var lanes = []string{wire.LaneReplies, wire.LaneRealtime, wire.LaneBulk}

func newStation(a Account, quota time.Duration, log *zap.Logger) *station {
	st := &station{account: a}
	st.gone, st.leave = context.WithCancel(context.Background())
	for _, api := range []wechat.API{wechat.APICustomSend, wechat.APITemplateSend, wechat.APIBizSend} {
		st.roads = append(st.roads, newRoad(a.Name, api, a.Limits.of(api), &st.whole, quota, log))
	}
	return st
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
		what := "account " + st.account.Name
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

// consume runs the account's groups until ctx ends or the account is gone.
func (s *Sender) consume(ctx context.Context, st *station) error {
	s.serving.Add(1)
	defer s.serving.Add(-1)
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(st.gone, cancel)()
	for _, lane := range lanes {
		g, err := s.newGroup(st, lane)
		if err != nil {
			cancel()
			wg.Wait()
			return err
		}
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

func (s *Sender) newGroup(st *station, lane string) (*kafka.Group, error) {
	name := st.account.Name
	topic := s.topics.Pushes(name, lane)
	places := st.account.Limits.Template.Concurrency + st.account.Limits.Subscription.Concurrency
	if lane == wire.LaneReplies {
		topic = s.topics.Replies(name)
		places = st.account.Limits.Replies.Concurrency
	}
	return kafka.NewGroup(s.kafka, kafka.GroupOptions{
		Group:        s.topics.Prefix + ".sender." + name + "." + lane,
		Topics:       []string{topic},
		Workers:      min(places+workersSpare, workersMost),
		DrainTimeout: drainTimeout,
		OnRevoke:     s.memory.forget,
		Handler: func(ctx context.Context, r kafka.Record) error {
			return s.handle(ctx, st, lane, r)
		},
	}, s.log, s.reg)
}
