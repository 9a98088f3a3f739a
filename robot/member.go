package robot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/ratelimit"
	"tidegate/pkg/wire"
)

// member is one account's part of the robot: its reader in the consumer group
// and its permits.
type member struct {
	name     string
	replies  string // its topic
	workers  int
	limiter  ratelimit.Permits
	line     *line // of the limiter
	places   *places
	group    *kafka.Group
	cancel   context.CancelFunc // nil before the first run
	retired  bool               // its account is gone; guarded by Robot.mu
	faulty   faulty
	shedding *shedding
	tally    *tally
	log      *zap.Logger
}

// SetAccounts replaces the accounts while the robot runs or before. New ones
// are read at once, removed ones finish what is in hand, changed caps hold
// from the next permit on, unless an operator has set others. On an error
// nothing changes.
func (r *Robot) SetAccounts(accounts []Account) error {
	if err := validAccounts(accounts); err != nil {
		return err
	}
	gone, err := r.setMembers(accounts)
	if err != nil {
		return err
	}
	r.steer(accounts, gone)
	return nil
}

// setMembers makes, keeps and ends the readers, and gives the names of accounts
// that are gone.
func (r *Robot) setMembers(accounts []Account) (gone []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]*member, len(accounts))
	var fresh []*member // with permits of their own, which nobody else gives up
	for _, a := range accounts {
		if old := r.members[a.Name]; old != nil && old.workers >= r.workersFor(a) {
			next[a.Name] = old
			continue
		}
		m, err := r.member(a, r.members[a.Name])
		if err != nil {
			for _, f := range fresh {
				f.limiter.Close()
			}
			return nil, err
		}
		if r.members[a.Name] == nil {
			fresh = append(fresh, m)
		}
		next[a.Name] = m
	}
	for name, old := range r.members {
		if next[name] != old && old.cancel != nil {
			old.cancel()
		}
		if next[name] == nil {
			gone = append(gone, name)
			old.retire()
		}
	}
	for _, a := range accounts {
		if m := next[a.Name]; r.base != nil && m.cancel == nil {
			r.start(m)
		}
	}
	r.members = next
	return gone, nil
}

// workersFor leaves room above the concurrency, so that publishing what is
// done does not keep permits unused.
func (r *Robot) workersFor(a Account) int {
	return min(max(r.cfg.Workers, a.Limits.Concurrency+a.Limits.Concurrency/2), 8192)
}

// member makes the reader of an account. An account that is read anew keeps
// its limiter: a second one would let twice the rate through for a moment.
func (r *Robot) member(a Account, old *member) (*member, error) {
	m := &member{name: a.Name, replies: r.d.Topics.Replies(a.Name), shedding: &shedding{}, tally: r.m.of(a.Name), workers: r.workersFor(a), log: r.d.Log.With(zap.String("account", a.Name))}
	if old != nil {
		m.limiter, m.shedding = old.limiter, old.shedding
	} else {
		m.limiter = r.d.permits("robot."+a.Name, a.Limits.limit())
	}
	// Those who wait are more than those who work; without a cap of the account's
	// the workers are one.
	working := ratelimit.New(ratelimit.Limit{Concurrency: m.workers})
	m.line = newLine("account", "account "+a.Name, both{careful{working, r.suspects}, m.limiter}, r.cfg.Overload.patience(), r.m.waiting)
	m.places = newPlaces(m.workers + r.cfg.Overload.Places)
	g, err := kafka.NewGroup(r.d.Kafka, kafka.GroupOptions{
		Group: wire.RobotGroup(r.cfg.Group, a.Name), Topics: []string{r.d.Topics.Callbacks(a.Name)},
		Handler:   func(ctx context.Context, rec kafka.Record) error { return r.handle(ctx, m, rec) },
		Workers:   m.places.total,
		QueueHigh: r.cfg.QueueHigh, QueueLow: r.cfg.QueueLow, MaxAhead: maxAhead,
		SessionTimeout: r.cfg.SessionTimeout, StallAfter: r.cfg.StalledAfter, GiveUpAfter: r.cfg.GiveUpAfter,
		OnAssign: func(topic string, p int32, offset int64) {
			r.suspects.Assigned(wire.RobotGroup(r.cfg.Group, a.Name), topic, p, offset)
		},
		OnRevoke: r.forget,
		OnStall:  func(s kafka.Stall) { r.stalled(m, s) },
		OnFreeze: func(gap time.Duration) { r.frozen(m, gap) },
		OnResume: func() { r.recovered(m) },
	}, m.log, r.d.Registry)
	if err != nil {
		if old == nil {
			m.limiter.Close()
		}
		return nil, fmt.Errorf("account %s: %w", a.Name, err)
	}
	m.group = g
	return m, nil
}

// forget drops what is remembered for a partition that somebody else works now.
func (r *Robot) forget(topic string, partition int32) {
	r.pending.forget(topic, partition)
	r.holds.forget(topic, partition)
	r.arrivals.forget(topic, partition)
	r.suspects.Released(topic, partition)
}

// start runs a member until it is cancelled; called with the lock.
func (r *Robot) start(m *member) {
	ctx, cancel := context.WithCancel(r.base)
	m.cancel = cancel
	r.working.Go(func() {
		defer cancel()
		defer r.recovered(m) // what has ended is not faulty
		defer r.ended(m)
		if err := m.group.Run(ctx); err != nil {
			select {
			case r.failed <- fmt.Errorf("account %s: %w", m.name, err):
			default:
			}
		}
	})
}

// Stats gives the partitions that this process works on now.
func (r *Robot) Stats() []kafka.PartitionStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []kafka.PartitionStats
	for _, m := range r.members {
		out = append(out, m.group.Stats()...)
	}
	slices.SortFunc(out, func(a, b kafka.PartitionStats) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}
