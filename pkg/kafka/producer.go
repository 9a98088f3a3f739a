package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/fault"
)

// ProducerOptions tune batching and the bounds. The zero value is good for the
// callback door.
type ProducerOptions struct {
	// Linger is how long a batch waits for company. Default 1ms: while a request is
	// out, what comes meanwhile gathers anyway, so that batches grow with what is
	// in flight. It must stay well below the caller's deadline.
	Linger time.Duration `koanf:"linger"`
	// BatchMessages sends a batch before Linger once it holds so many. Default
	// 1000. A small number costs the broker and us more requests.
	BatchMessages int `koanf:"batch_messages"`
	// MaxRecordBytes is the largest record. Default 1 MB (1,000,000).
	MaxRecordBytes int `koanf:"max_record_bytes"`
	// MaxInFlight and MaxInFlightBytes bound what waits for a result; beyond
	// them Publish answers fault.Unavailable at once. Defaults 20,000 and 64 MiB.
	MaxInFlight      int   `koanf:"max_in_flight"`
	MaxInFlightBytes int64 `koanf:"max_in_flight_bytes"`
	// MaxBlock is how long handing over a record may take when the producer is
	// busy or not yet connected. Default 1s; PublishAsync waits a tenth of it.
	MaxBlock time.Duration `koanf:"max_block"`
}

func (o ProducerOptions) withDefaults() ProducerOptions {
	setDefault(&o.Linger, time.Millisecond)
	setDefault(&o.BatchMessages, 1000)
	setDefault(&o.MaxRecordBytes, 1_000_000)
	setDefault(&o.MaxInFlight, 20_000)
	setDefault(&o.MaxInFlightBytes, 64<<20)
	setDefault(&o.MaxBlock, time.Second)
	return o
}

// Validate reports the first option that cannot work.
func (o ProducerOptions) Validate() error {
	if o.Linger < 0 || o.BatchMessages < 0 || o.MaxRecordBytes < 0 || o.MaxInFlight < 0 || o.MaxInFlightBytes < 0 || o.MaxBlock < 0 {
		return invalid("producer", "no option may be negative; leave it out for its default")
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Producer publishes records. It is safe for concurrent use; one per process
// and role is right (libraries.md 8.14).
type Producer struct {
	opt  ProducerOptions
	conf *sarama.Config
	addr []string
	log  *zap.Logger
	met  *producerMetrics

	// mu guards the link: who sends holds the read side, so that the link is
	// never closed under a sender.
	mu      sync.RWMutex
	link    *link         // nil while there is no connection
	linkErr error         // why there is none, once a connection has failed
	up      chan struct{} // closed when link becomes non-nil
	closed  bool

	pend pendings
	line *line     // of TryPublish and PublishInTurn
	idle sync.Pool // of *turns that nobody uses

	stop    chan struct{}
	stopped chan struct{}
}

// NewProducer checks the configuration and starts connecting; it does not wait
// for the cluster, so a process can start while Kafka is away.
func NewProducer(cfg Config, opt ProducerOptions, log *zap.Logger, reg prometheus.Registerer) (*Producer, error) {
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
	met, err := newProducerMetrics(reg, conf.ClientID)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "register producer metrics", err)
	}
	setProducer(conf, cfg.withDefaults(), opt)
	p := &Producer{
		opt: opt, conf: conf, addr: cfg.Brokers, log: log.Named("producer"), met: met,
		up: make(chan struct{}), stop: make(chan struct{}), stopped: make(chan struct{}), line: newLine(opt.MaxInFlight),
	}
	go p.serveLine()
	go p.keepLink()
	return p, nil
}

func setProducer(conf *sarama.Config, cfg Config, opt ProducerOptions) {
	conf.Producer.Idempotent = true
	conf.Producer.RequiredAcks = sarama.WaitForAll
	conf.Net.MaxOpenRequests = 1
	conf.Producer.Timeout = cfg.RequestTimeout
	conf.Net.ReadTimeout = cfg.RequestTimeout + time.Second // the broker's own time-out should come first
	// Asking for the producer id is tried again by keepLink, which tells the
	// callers in the meantime; sarama's own 50 tries would take 10 s of silence.
	conf.Producer.Transaction.Retry.Max = 1
	conf.Producer.Retry.Max = 10
	conf.Producer.Retry.MaxBufferBytes = 64 << 20
	// The first failure of a record that was never sent is final at once (0);
	// what was sent is retried at 50, 100, 200 … 500 ms.
	conf.Producer.Retry.BackoffFunc = func(retries, _ int) time.Duration {
		if retries <= 0 {
			return 0
		}
		return min(25*time.Millisecond<<min(retries, 6), 500*time.Millisecond)
	}
	conf.Producer.Flush.Frequency = opt.Linger
	conf.Producer.Flush.Messages = opt.BatchMessages
	conf.Producer.MaxMessageBytes = opt.MaxRecordBytes
	conf.Producer.Compression = sarama.CompressionLZ4
	conf.Producer.Partitioner = sarama.NewMurmur2Partitioner
	conf.Producer.Return.Successes = true
	conf.Producer.Return.Errors = true
	watchRequests(conf)
}

// Publish returns when every in-sync replica has the record, with its partition
// and offset. Its error is of kind Invalid (never retry this record), Denied,
// Unavailable (not written), or Ambiguous (may have been written: the context
// ended while it was under way, or the connection broke).
func (p *Producer) Publish(ctx context.Context, r Record) (Record, error) {
	pe := newPending(r, nil)
	if err := p.send(ctx, pe, p.opt.MaxBlock); err != nil {
		return Record{}, err
	}
	select {
	case <-pe.got:
		return pe.rec, pe.err
	case <-ctx.Done():
		return Record{}, underWay(ctx, r.Topic)
	}
}

func underWay(ctx context.Context, topic string) error {
	return fault.New(fault.Ambiguous, "publish to "+topic, "the record is under way and has no result yet: %w", context.Cause(ctx))
}

// PublishAsync hands the record over and calls done exactly once with its
// result – unless it returns an error: then the record was not taken and done
// is never called. It waits at most a tenth of MaxBlock. done runs on the
// producer's own goroutine and must be quick.
func (p *Producer) PublishAsync(r Record, done func(Record, error)) error {
	return p.send(context.Background(), newPending(r, done), p.opt.MaxBlock/10)
}

// TryPublish is PublishAsync for a caller who must not wait at all: an error also
// says that the producer has no room at this instant, and that the cluster is
// away comes through done.
func (p *Producer) TryPublish(r Record, done func(Record, error)) error {
	return p.lineUp(newPending(r, done))
}

// PublishAll publishes the records in their order and waits for all results.
// It returns the first error, with the number of records that failed; others of
// the same call may have been written.
func (p *Producer) PublishAll(ctx context.Context, rs []Record) error {
	results := make(chan error, len(rs))
	var first error
	failed, sent := 0, 0
	for _, r := range rs {
		if err := p.send(ctx, newPending(r, func(_ Record, err error) { results <- err }), p.opt.MaxBlock); err != nil {
			first, failed = err, len(rs)-sent
			break // later ones of the same key must not overtake this one
		}
		sent++
	}
	for range sent {
		select {
		case err := <-results:
			if err != nil {
				failed++
				if first == nil {
					first = err
				}
			}
		case <-ctx.Done():
			return underWay(ctx, fmt.Sprintf("%d records", len(rs)))
		}
	}
	if first != nil {
		return fmt.Errorf("%d of %d records not published: %w", failed, len(rs), first)
	}
	return nil
}

// InFlight is the number of records whose result is not known.
func (p *Producer) InFlight() int {
	p.pend.Lock()
	defer p.pend.Unlock()
	return p.pend.n
}
