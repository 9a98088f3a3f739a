package kafka

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"tidegate/pkg/fault"
)

// scanned is how many partitions a scan reads at the same time.
const scanned = 16

// Scan reads what a topic holds at this moment, for a command that looks
// through it: the records of each partition in the order of their offsets, from
// the first one that was written at since or later (all of them for a zero time)
// to where the partition ended when its turn came. each is called by one at a
// time. A scan is in no group and leaves no trace. What retention deletes
// meanwhile is not seen, nor what comes meanwhile.
//
// An error of each ends it and is given back as it is.
func Scan(ctx context.Context, cfg Config, topic string, since time.Time, each func(Record) error) error {
	bridge(nil)
	conf, err := cfg.base()
	if err != nil {
		return err
	}
	conf.Consumer.Return.Errors = true
	conf.Consumer.Fetch.Default = 256 << 10
	conf.Consumer.MaxWaitTime = 100 * time.Millisecond // the last fetch of a partition is waited for
	conf.ChannelBufferSize = 64
	op := "scan topic " + topic
	client, err := sarama.NewClient(cfg.Brokers, conf)
	if err != nil {
		return scanFault(op, err)
	}
	defer func() { _ = client.Close() }()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return scanFault(op, err)
	}
	defer func() { _ = consumer.Close() }()
	partitions, err := client.Partitions(topic)
	if err != nil {
		return scanFault(op, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := scan{ctx: ctx, client: client, consumer: consumer, topic: topic, patience: 4 * cfg.withDefaults().RequestTimeout, found: make(chan Record)}
	theirs, ours := s.all(partitions, since, each, cancel)
	if theirs != nil {
		return theirs
	}
	return scanFault(op, ours)
}

// all reads the partitions and gives the first error: the caller's, or ours.
func (s scan) all(partitions []int32, since time.Time, each func(Record) error, cancel func()) (theirs, ours error) {
	ends := make(chan error)
	turns := make(chan struct{}, scanned)
	for _, p := range partitions {
		go func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ends <- s.partition(p, since)
		}()
	}
	for left := len(partitions); left > 0; {
		select {
		case r := <-s.found:
			if theirs == nil && ours == nil {
				if theirs = each(r); theirs != nil {
					cancel()
				}
			}
		case err := <-ends:
			left--
			if err != nil && theirs == nil && ours == nil {
				ours = err
				cancel()
			}
		}
	}
	return theirs, ours
}

func scanFault(op string, err error) error {
	if err != nil && isAny(err, sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic) {
		return fault.New(fault.NotFound, op, "the cluster has no such topic, or does not show it to this user")
	}
	return adminFault(op, err)
}

type scan struct {
	ctx      context.Context
	client   sarama.Client
	consumer sarama.Consumer
	topic    string
	patience time.Duration // for the next record
	found    chan Record
}

func (s scan) partition(p int32, since time.Time) error {
	end, err := s.offset(p, sarama.OffsetNewest)
	if err != nil {
		return err
	}
	at := sarama.OffsetOldest
	if !since.IsZero() {
		if at, err = s.offset(p, since.UnixMilli()); err != nil {
			return err
		}
		if at < 0 { // nothing is that young
			return nil
		}
	}
	wait, deadline := backoff{min: 50 * time.Millisecond, max: time.Second}, time.Now().Add(s.patience)
	for {
		begin, err := s.offset(p, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		at = max(at, begin)
		if at >= end {
			return nil
		}
		before := at
		at, err = s.read(p, at, end)
		if at > before {
			wait.fails, deadline = 0, time.Now().Add(s.patience)
		}
		switch {
		case errors.Is(err, sarama.ErrOffsetOutOfRange): // retention was faster: on from what is left
		case isAny(err, sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable) && time.Now().Before(deadline) && s.ctx.Err() == nil:
			wait.sleep(s.ctx.Done())
			_ = s.client.RefreshMetadata(s.topic) // if it fails the next question tells
		default:
			return err
		}
	}
}

// offset asks again for a while when the leader has just moved, or is not there
// yet.
func (s scan) offset(p int32, at int64) (int64, error) {
	wait, deadline := backoff{min: 50 * time.Millisecond, max: time.Second}, time.Now().Add(s.patience)
	for {
		o, err := s.client.GetOffset(s.topic, p, at)
		if err == nil || !isAny(err, sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable) || time.Now().After(deadline) {
			return o, err
		}
		wait.sleep(s.ctx.Done())
		if s.ctx.Err() != nil {
			return 0, context.Cause(s.ctx)
		}
	}
}

// read gives the records from an offset to the end, and the offset behind the
// last one.
func (s scan) read(p int32, at, end int64) (int64, error) {
	pc, err := s.consumer.ConsumePartition(s.topic, p, at)
	if err != nil {
		return at, err
	}
	defer func() {
		pc.AsyncClose()
		for range pc.Messages() { // or it would wait for a reader
		}
		for range pc.Errors() {
		}
	}()
	silent := time.NewTimer(s.patience)
	defer silent.Stop()
	var last error
	for at < end {
		if s.ctx.Err() != nil {
			return at, context.Cause(s.ctx)
		}
		select {
		case m, ok := <-pc.Messages():
			if !ok { // sarama has given the partition up
				return at, cmp.Or(last, error(sarama.ErrOffsetOutOfRange))
			}
			if m.Offset >= end {
				return at, nil
			}
			select {
			case s.found <- recordOf(m, nil):
			case <-s.ctx.Done():
				return at, context.Cause(s.ctx)
			}
			at = m.Offset + 1
			silent.Reset(s.patience)
		case e, ok := <-pc.Errors():
			switch {
			case !ok:
				return at, cmp.Or(last, error(sarama.ErrOffsetOutOfRange))
			case errors.Is(e, sarama.ErrOffsetOutOfRange):
				return at, sarama.ErrOffsetOutOfRange
			}
			last = e // sarama tries on
		case <-silent.C:
			return at, errors.Join(errors.New("the broker gives nothing more"), last)
		case <-s.ctx.Done():
			return at, context.Cause(s.ctx)
		}
	}
	return at, nil
}
