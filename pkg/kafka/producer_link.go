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

// stallAfter is the age of the oldest record without a result at which the
// connection is given up. It is far beyond sarama's own retries (about 10 × 0.5 s
// and the request time-outs): sarama has had releases that stalled for ever
// (libraries.md 8.6).
const stallAfter = 60 * time.Second

// link is one sarama producer with its client. When the whole cluster is lost
// it is drained, closed and replaced: sarama's breakers would otherwise keep
// refusing for up to 10 s after the cluster is back. The next link starts only
// after the last result of the old one, so records of a key cannot overtake.
type link struct {
	client  sarama.Client
	prod    sarama.AsyncProducer
	quit    chan struct{} // closed: nobody may put anything in any more
	lost    chan error    // buffered, one: why it must be replaced
	drained chan struct{} // closed: every result has been delivered
}

// keepLink connects, watches and replaces the link until Close.
func (p *Producer) keepLink() {
	defer close(p.stopped)
	defer func() { <-p.line.empty }()
	wait := backoff{min: 100 * time.Millisecond, max: 2 * time.Second}
	for !p.isStopping() {
		l, err := p.connect()
		if err != nil {
			p.noLink(err)
			if wait.fails == 0 {
				p.log.Warn("no connection to the cluster, trying on", zap.Error(err))
			}
			wait.sleep(p.stop)
			continue
		}
		p.setLink(l, wait.fails > 0)
		wait.fails = 0
		cause := p.watch(l)
		p.retire(l, cause)
	}
}

func (p *Producer) isStopping() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

func (p *Producer) connect() (*link, error) {
	client, err := sarama.NewClient(p.addr, p.conf)
	if err != nil {
		return nil, err
	}
	prod, err := sarama.NewAsyncProducerFromClient(client) // asks for a producer id, so it proves the connection
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	l := &link{client: client, prod: prod, quit: make(chan struct{}), lost: make(chan error, 1), drained: make(chan struct{})}
	go p.drain(l)
	return l, nil
}

// drain delivers the results. Successes and errors each need a reader of their
// own, or sarama deadlocks (libraries.md 8.11). Both end when sarama is closed.
func (p *Producer) drain(l *link) {
	var wg sync.WaitGroup
	wg.Go(func() {
		published := counters{}
		for m := range l.prod.Successes() {
			p.settle(m, nil, published)
		}
	})
	wg.Go(func() {
		for e := range l.prod.Errors() {
			if isAny(e.Err, sarama.ErrOutOfBrokers, sarama.ErrClosedClient) {
				select {
				case l.lost <- e.Err:
				default:
				}
			}
			p.settle(e.Msg, e.Err, nil)
		}
	})
	wg.Wait()
	close(l.drained)
}

// watch waits for the reason to give the link up; nil means Close.
func (p *Producer) watch(l *link) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return nil
		case err := <-l.lost:
			return err
		case <-tick.C:
			if age := p.oldest(); age > stallAfter {
				return fault.New(fault.Unavailable, "publish", "no result for a record since %s", age.Round(time.Second))
			}
		}
	}
}

func (p *Producer) oldest() time.Duration {
	p.pend.Lock()
	defer p.pend.Unlock()
	if pe := p.pend.first; pe != nil {
		return time.Since(pe.since)
	}
	return 0
}

func (p *Producer) setLink(l *link, again bool) {
	p.mu.Lock()
	p.link, p.linkErr = l, nil
	close(p.up)
	p.mu.Unlock()
	p.met.connected.Set(1)
	if again {
		p.log.Info("connected to the cluster again")
	}
}

func (p *Producer) noLink(cause error) {
	p.mu.Lock()
	p.linkErr = cause
	p.mu.Unlock()
}

// retire closes a link after its last result. A link that does not drain is
// abandoned with its records as Ambiguous: better a leak that is logged than a
// producer that stands still.
func (p *Producer) retire(l *link, cause error) {
	close(l.quit)
	p.mu.Lock()
	p.link, p.linkErr, p.up = nil, cause, make(chan struct{})
	p.mu.Unlock()
	p.met.connected.Set(0)
	if cause != nil {
		p.log.Warn("connection to the cluster lost, renewing it", zap.Error(cause))
	}
	l.prod.AsyncClose()
	select {
	case <-l.drained:
		_ = l.client.Close() // nothing waits on it any more; its error says only that it was closed
	case <-time.After(stallAfter):
		p.log.Error("the producer does not drain, abandoning it", zap.Int("records", p.InFlight()))
		p.abandon()
	}
}

// abandon answers everything that still waits.
func (p *Producer) abandon() {
	p.pend.Lock()
	var left []*pending
	for pe := p.pend.first; pe != nil; pe = pe.next {
		left = append(left, pe)
	}
	p.pend.Unlock()
	for _, pe := range left {
		if p.release(pe) {
			err := fault.New(fault.Ambiguous, "publish to "+pe.rec.Topic, "no result within %s", stallAfter)
			p.failed(pe.rec.Topic, err)
			pe.finish(pe.rec, err)
		}
	}
}

// Close refuses new records, waits for the results of those in flight and
// closes the connection. When ctx ends first it returns fault.Ambiguous and the
// rest goes on in the background until the network time-outs end it. It may be
// called twice.
func (p *Producer) Close(ctx context.Context) error {
	p.line.close()
	select {
	case <-p.line.empty: // what was taken goes before the end
	case <-ctx.Done():
	}
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.stop)
	}
	p.mu.Unlock()
	select {
	case <-p.stopped:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Ambiguous, "close producer", "%d records have no result yet: %w", p.InFlight(), context.Cause(ctx))
	}
}
