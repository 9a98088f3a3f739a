//go:build bench

// Command post is the yardstick of the sender benchmark: what sarama and net/http
// cost when a consumer group posts the records of one topic to an address and
// marks each when it and all before it are answered. It is frozen but for its
// settings: another way of posting would make figures of different commits
// incomparable.
//
//	post BROKER GROUP FROM URL PLACES
//
// PLACES is how many requests may be under way, as a sender's concurrency. It runs
// until SIGTERM, then prints how many records it has posted, and how many times and
// how many bytes it has allocated for that.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama" //nolint:depguard // the loop is what pkg/kafka is measured beside
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "post:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 6 {
		return errors.New("use post BROKER GROUP FROM URL PLACES")
	}
	places, err := strconv.Atoi(os.Args[5])
	if err != nil || places < 1 {
		return fmt.Errorf("PLACES %q is not a number of requests", os.Args[5])
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	cg, err := sarama.NewConsumerGroup([]string{os.Args[1]}, os.Args[2], settings())
	if err != nil {
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := &poster{url: os.Args[4], places: make(chan struct{}, places), client: &http.Client{
		Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConns: places, MaxIdleConnsPerHost: places, IdleConnTimeout: time.Minute},
	}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for err := range cg.Errors() {
			fmt.Fprintln(os.Stderr, "post: consume:", err)
		}
	})
	for ctx.Err() == nil {
		if err := cg.Consume(ctx, []string{os.Args[3]}, p); err != nil && ctx.Err() == nil {
			return err
		}
	}
	err = cg.Close()
	wg.Wait()
	runtime.ReadMemStats(&after)
	fmt.Fprintln(os.Stdout, p.posted.Load(), after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc)
	return err
}

// settings are those of the copy loop's consumer.
func settings() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "tidegate"
	c.Version = sarama.V3_6_0_0
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 2*time.Second, 20*time.Second, 5*time.Second
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = time.Second
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = 6*time.Second, time.Second
	c.Consumer.Group.Rebalance.Timeout = 15 * time.Second
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	c.Consumer.Fetch.Default = 256 << 10
	c.ChannelBufferSize = 64
	return c
}

type poster struct {
	url    string
	places chan struct{}
	client *http.Client
	posted atomic.Int64
}

func (p *poster) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (p *poster) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// flight is one request; done tells whether it was answered.
type flight struct {
	msg  *sarama.ConsumerMessage
	done chan error
}

func (p *poster) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	flights := make(chan flight, cap(p.places))
	var wg sync.WaitGroup
	wg.Go(func() { // marks follow the order of the partition
		for f := range flights {
			if err := <-f.done; err != nil {
				fmt.Fprintln(os.Stderr, "post:", err)
				os.Exit(1) // a yardstick that left something out would be none
			}
			s.MarkMessage(f.msg, "")
			p.posted.Add(1)
		}
	})
	defer wg.Wait()
	defer close(flights)
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			f := flight{m, make(chan error, 1)}
			p.places <- struct{}{}
			go func() {
				f.done <- p.post(m.Value)
				<-p.places
			}()
			flights <- f
		case <-s.Context().Done():
			return nil
		}
	}
}

func (p *poster) post(body []byte) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", res.Status)
	}
	return nil
}
