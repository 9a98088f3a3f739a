package kafka

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// Handler works one record. nil means: finished, its offset may be committed.
// An error (or a panic) holds the record's key and the record is tried again.
// A handler must tolerate seeing a record twice, and must return soon after its
// context ends: the partition then belongs to somebody else.
type Handler func(ctx context.Context, r Record) error

// BatchHandler works records of one partition in offset order; an error repeats
// the whole batch. The slice is the handler's only until it returns.
type BatchHandler func(ctx context.Context, rs []Record) error

// drainGrace is how long a handler whose context was ended may take to return
// before its partition is given up without it.
const drainGrace = 2 * time.Second

// GroupOptions say what a consumer group reads and who works it. Exactly one of
// Handler and Batch must be set; everything from Workers on has a default.
type GroupOptions struct {
	Group   string
	Topics  []string
	Handler Handler
	Batch   BatchHandler

	// Workers is the number of handler calls at the same time, shared by all
	// partitions of this member. Default 64.
	Workers int
	// QueueHigh and QueueLow are the marks, in waiting records of a partition, at
	// which its fetch is paused and resumed. Defaults 1000 and 200. What was
	// already under way still arrives: about one fetch (256 KB) more.
	QueueHigh, QueueLow int
	// QueueBytes pauses a partition as well, by the size of its unfinished
	// records. Default 8 MiB.
	QueueBytes int64
	// MaxAhead bounds the records between the low-water mark and the newest begun
	// one, that is what a crash may repeat. Default 10,000.
	MaxAhead int
	// BatchMax and BatchLinger end a batch: so many records, or so long after its
	// first one arrived. Defaults 500 and 50ms.
	BatchMax    int
	BatchLinger time.Duration
	// RetryMin and RetryMax bound the pause before a failed record is tried again;
	// it doubles, with jitter. Defaults 100ms and 5s. A fault's RetryAfter
	// lengthens it, up to a minute.
	RetryMin, RetryMax time.Duration
	// DrainTimeout is what running handlers get when their partition is taken
	// away or the group stops, before their context ends. Default 10s.
	DrainTimeout time.Duration
	// SessionTimeout is how long a silent member keeps its partitions. Default 6s.
	SessionTimeout time.Duration
	// RebalanceTimeout is how long the group waits for a member to give up its
	// partitions. Default: DrainTimeout + 5s.
	RebalanceTimeout time.Duration
	// StallAfter is how long a handler may run without a sign of life (Alive)
	// before this member leaves the group by itself, so that others work its
	// partitions. It joins again when its handlers have returned. 0, the default,
	// watches no handler.
	StallAfter time.Duration
	// GiveUpAfter is how long, from then on, Run waits for those handlers before it
	// returns an error: then only a new process can go on. Default StallAfter.
	GiveUpAfter time.Duration
	// Cooperative moves partitions without stopping the others; right for three
	// and more brokers. The default, sticky, stops all for a moment.
	Cooperative bool
	// OnAssign and OnRevoke are told when this member gets a partition (with the
	// first offset, or -1 when it is not known yet) and when it has let it go. They
	// must be quick.
	OnAssign func(topic string, partition int32, offset int64)
	OnRevoke func(topic string, partition int32)
	// OnStall is told when the member leaves because of silent handlers, OnFreeze
	// when it gives everything up because its process stood still, OnResume when it
	// is in the group again after either. They must be quick.
	OnStall  func(s Stall)
	OnFreeze func(gap time.Duration)
	OnResume func()
}

func (o GroupOptions) withDefaults() GroupOptions {
	setDefault(&o.Workers, 64)
	setDefault(&o.QueueHigh, 1000)
	setDefault(&o.QueueLow, min(200, o.QueueHigh/2))
	setDefault(&o.QueueBytes, 8<<20)
	setDefault(&o.MaxAhead, 10_000)
	setDefault(&o.BatchMax, 500)
	setDefault(&o.BatchLinger, 50*time.Millisecond)
	setDefault(&o.RetryMin, 100*time.Millisecond)
	setDefault(&o.RetryMax, max(5*time.Second, o.RetryMin))
	setDefault(&o.DrainTimeout, 10*time.Second)
	setDefault(&o.SessionTimeout, 6*time.Second)
	setDefault(&o.RebalanceTimeout, o.DrainTimeout+5*time.Second)
	setDefault(&o.GiveUpAfter, o.StallAfter)
	return o
}

// heartbeat is the pause between two heartbeats.
func (o GroupOptions) heartbeat() time.Duration { return min(time.Second, o.SessionTimeout/3) }

// Validate reports the first option that cannot work.
func (o GroupOptions) Validate() error {
	o = o.withDefaults()
	switch {
	case o.Group == "":
		return invalid("group", "the consumer group has no name")
	case (o.Handler == nil) == (o.Batch == nil):
		return invalid("group "+o.Group, "exactly one of Handler and Batch must be set")
	case o.Workers < 0 || o.QueueHigh < 0 || o.QueueBytes < 0 || o.MaxAhead < 0 || o.BatchMax < 0 || o.BatchLinger < 0:
		return invalid("group "+o.Group, "no option may be negative; leave it out for its default")
	case o.QueueLow < 0 || o.QueueLow >= o.QueueHigh:
		return invalid("queue_low", "the low mark %d must lie below the high mark %d", o.QueueLow, o.QueueHigh)
	case o.RetryMin < 0 || o.RetryMax < o.RetryMin:
		return invalid("retry_max", "%s must not be shorter than retry_min %s", o.RetryMax, o.RetryMin)
	case o.DrainTimeout < 0 || o.RebalanceTimeout < o.DrainTimeout+drainGrace:
		return invalid("rebalance_timeout", "%s must be at least drain_timeout + 2s = %s", o.RebalanceTimeout, o.DrainTimeout+drainGrace)
	case o.StallAfter < 0 || o.StallAfter > 0 && o.StallAfter < 100*time.Millisecond || o.GiveUpAfter < 0:
		return invalid("stall_after", "%s and give_up_after %s: use 100ms and more, or 0 to watch no handler", o.StallAfter, o.GiveUpAfter)
	case o.SessionTimeout < 2*time.Second:
		return invalid("session_timeout", "%s is too short: at least 2s, for heartbeats every second at most", o.SessionTimeout)
	}
	return nil
}

// Group is one member of a consumer group.
type Group struct {
	opt  GroupOptions
	conf *sarama.Config
	addr []string
	log  *zap.Logger
	met  *groupMetrics

	sched      *scheduler
	running    atomic.Bool
	inSession  atomic.Bool
	stalled    atomic.Bool // leaving because of silent handlers, until they have returned
	resuming   atomic.Bool // from then until the next session
	generation atomic.Int32

	mu      sync.Mutex
	topics  []string
	changed chan struct{}           // closed and replaced when topics change
	end     context.CancelCauseFunc // of the present session
}

// NewGroup checks the options; it does not connect.
func NewGroup(cfg Config, opt GroupOptions, log *zap.Logger, reg prometheus.Registerer) (*Group, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		log = zap.NewNop()
	}
	bridge(log)
	conf, err := cfg.base()
	if err != nil {
		return nil, err
	}
	opt = opt.withDefaults()
	met, err := newGroupMetrics(reg, opt.Group)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "register group metrics", err)
	}
	setGroup(conf, opt)
	watchRequests(conf)
	log = log.Named("group").With(zap.String("group", opt.Group))
	g := &Group{
		opt: opt, conf: conf, addr: cfg.Brokers, log: log, met: met,
		sched: newScheduler(opt, log, met), topics: tidy(opt.Topics), changed: make(chan struct{}),
	}
	g.sched.watch.frozen = g.freeze
	return g, nil
}

func setGroup(conf *sarama.Config, opt GroupOptions) {
	c := &conf.Consumer
	c.Return.Errors = true
	c.Offsets.Initial = sarama.OffsetOldest // newest loses what a new partition or group has not seen (T30)
	c.Offsets.AutoCommit.Enable = true      // commits marked offsets only, and flushes them on a revoke
	c.Offsets.AutoCommit.Interval = time.Second
	c.Group.Session.Timeout = opt.SessionTimeout
	c.Group.Heartbeat.Interval = opt.heartbeat()
	c.Group.Rebalance.Timeout = opt.RebalanceTimeout
	c.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	if opt.Cooperative {
		c.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	c.MaxProcessingTime = 10 * time.Millisecond
	c.Fetch.Default = 256 << 10
	conf.ChannelBufferSize = 64
	// The broker answers JoinGroup only when every member has joined.
	conf.Net.ReadTimeout = opt.RebalanceTimeout + 5*time.Second
}

// SetTopics changes what the group reads, while it runs: what is being worked
// gets finished and committed, then the member joins again with the new topics.
// A topic that does not exist yet is picked up when it appears.
func (g *Group) SetTopics(topics []string) {
	topics = tidy(topics)
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Equal(topics, g.topics) {
		return
	}
	g.topics = topics
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *Group) wanted() ([]string, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.topics, g.changed
}

func tidy(topics []string) []string {
	out := slices.Clone(topics)
	slices.Sort(out)
	return slices.Compact(out)
}

// PartitionStats is the state of one partition of this member.
type PartitionStats struct {
	Topic     string
	Partition int32
	Queued    int   // fetched, not begun
	InFlight  int   // handler calls running
	HeldKeys  int   // keys waiting for a retry
	LowWater  int64 // next offset to be committed, -1 while unknown
	End       int64 // offset of the next record to be written, as last seen
	Paused    bool
	Oldest    time.Duration // age, since its fetch, of the oldest unfinished record
}

// Stats gives the partitions that this member owns now, sorted.
func (g *Group) Stats() []PartitionStats { return g.sched.stats() }
