package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// topicRecheck is how often a topic that is wanted and does not exist is looked
// for again.
const topicRecheck = 2 * time.Second

// Run reads until ctx ends, then drains, commits, leaves the group and returns
// nil. It rides out an unreachable cluster. It returns when the last handler has
// returned, with one exception: handlers that hang for longer than StallAfter and
// GiveUpAfter allow are an error, and are left behind. They can commit nothing,
// but only the end of the process ends them. A second Run at the same time is an
// error as well.
func (g *Group) Run(ctx context.Context) (err error) {
	if !g.running.CompareAndSwap(false, true) {
		return fault.New(fault.Conflict, "run group "+g.opt.Group, "it is running already")
	}
	stop := g.sched.start()
	defer func() {
		left := g.stalled.Load() && err != nil
		stop(left)
		g.running.Store(left) // what was left behind still runs
	}()
	defer g.startGauges()()
	defer g.startWatch()()
	wait := backoff{min: 100 * time.Millisecond, max: 5 * time.Second}
	quiet := quietLog{log: g.log}
	for ctx.Err() == nil {
		client, err := sarama.NewClient(g.addr, g.conf)
		if err != nil {
			quiet.warn("cannot open the client, trying on", err)
			wait.sleep(ctx.Done())
			continue
		}
		cg, err := sarama.NewConsumerGroupFromClient(g.opt.Group, client)
		if err != nil {
			return fault.Wrap(fault.Internal, "run group "+g.opt.Group, errors.Join(err, client.Close()))
		}
		g.serve(ctx, client, cg, &wait, &quiet)
		if g.stalled.Load() {
			if err := g.awaitHandlers(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Group) startGauges() (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				g.sched.publishGauges()
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); wg.Wait() }
}

// serve uses one client until ctx ends, the client is closed or the member has
// to leave.
func (g *Group) serve(ctx context.Context, client sarama.Client, cg sarama.ConsumerGroup, wait *backoff, quiet *quietLog) {
	var wg sync.WaitGroup
	wg.Go(func() { g.drainErrors(cg.Errors()) })
	done := make(chan struct{})
	wg.Go(func() { g.unblock(ctx, done, client) })
	for ctx.Err() == nil && !client.Closed() {
		err := g.consumeOnce(ctx, client, cg)
		g.inSession.Store(false)
		if g.stalled.Load() {
			break
		}
		if err == nil {
			wait.fails = 0
			continue
		}
		if ctx.Err() == nil {
			quiet.warn("cannot consume, trying on", err)
			wait.sleep(ctx.Done())
		}
	}
	// Closed in this order: the group leaves through the client.
	if err := cg.Close(); err != nil && !errors.Is(err, sarama.ErrClosedClient) {
		g.log.Debug("close group", zap.Error(err))
	}
	close(done)
	if !client.Closed() {
		_ = client.Close() // the group has left; an error means that a connection was closed already
	}
	wg.Wait()
}

// consumeOnce joins the group and works until a rebalance, a change of topics
// or the end of ctx.
func (g *Group) consumeOnce(ctx context.Context, client sarama.Client, cg sarama.ConsumerGroup) error {
	topics, changed := g.wanted()
	have, missing, err := existing(client, topics)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		g.log.Warn("topics do not exist yet, reading the others; create them", zap.Strings("topics", missing))
	}
	ctx, ended := g.beginSession(ctx)
	defer ended()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(have) == 0 {
		g.waitForTopics(ctx, client, changed, missing)
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		g.waitForTopics(ctx, client, changed, missing)
		cancel() // ends the session in good order: claims drain and commit
	})
	err = cg.Consume(ctx, have, &session{g: g, cg: cg, base: context.WithoutCancel(ctx)})
	cancel()
	wg.Wait()
	return err
}

// existing splits topics by whether the cluster knows them: one that does not
// exist would otherwise keep the member from reading all the others.
func existing(client sarama.Client, topics []string) (have, missing []string, err error) {
	if len(topics) == 0 {
		return nil, nil, nil
	}
	// One request for all; a missing topic makes it fail, and is found below.
	if err := client.RefreshMetadata(topics...); err == nil {
		return topics, nil, nil
	}
	for _, t := range topics {
		switch _, err := client.Partitions(t); {
		case err == nil:
			have = append(have, t)
		case isAny(err, sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic):
			missing = append(missing, t)
		default:
			return nil, nil, err
		}
	}
	return have, missing, nil
}

// waitForTopics returns when the wish changed, a missing topic has appeared, or
// ctx ended.
func (g *Group) waitForTopics(ctx context.Context, client sarama.Client, changed <-chan struct{}, missing []string) {
	tick := time.NewTicker(topicRecheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			return
		case <-tick.C:
			for _, t := range missing {
				if err := client.RefreshMetadata(t); err == nil {
					return
				}
			}
		}
	}
}

// unblock closes the client when Consume does not return after ctx ended: a
// JoinGroup that waits for other members cannot be cancelled otherwise.
func (g *Group) unblock(ctx context.Context, done <-chan struct{}, client sarama.Client) {
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	limit := 2 * time.Second
	if g.inSession.Load() {
		limit = g.opt.DrainTimeout + drainGrace + 5*time.Second
	}
	if !waitFor(done, limit) {
		g.log.Warn("the group does not let go, closing its connections")
		_ = client.Close()
	}
}

func (g *Group) drainErrors(errs <-chan error) {
	quiet := quietLog{log: g.log}
	for err := range errs {
		if errors.Is(err, sarama.ErrOffsetOutOfRange) {
			var ce *sarama.ConsumerError
			topic := ""
			if errors.As(err, &ce) {
				topic = ce.Topic
			}
			g.met.reset.WithLabelValues(g.opt.Group, topic).Inc()
			g.log.Error("the position was deleted by retention, records were lost; going on at the oldest", zap.Error(err))
			continue
		}
		quiet.warn("consumer error", err)
	}
}

// quietLog writes at most one line in five seconds, with the number of those it
// left out: one broker restart makes more than a hundred errors.
type quietLog struct {
	log  *zap.Logger
	last time.Time
	left int
}

func (q *quietLog) warn(msg string, err error) {
	if time.Since(q.last) < 5*time.Second {
		q.left++
		return
	}
	q.log.Warn(msg, zap.Error(err), zap.Int("left_out", q.left))
	q.last, q.left = time.Now(), 0
}
