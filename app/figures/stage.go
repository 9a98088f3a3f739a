package figures

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
	"tidegate/pkg/wire"
)

// stage is what all scenes of one run share: the engines and the length of a run.
type stage struct {
	Options
	span  time.Duration
	stack []func() error

	mu       sync.Mutex // scenes of the short form run at the same time
	redisCfg *redis.Config
	kafkaCfg *kafka.Config
	prefix   string
	number   int
}

func (s *stage) progress(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err != nil {
		fmt.Fprintf(s.Err, "figures: "+format+"\n", args...)
	}
}

// close ends what was opened, last first.
func (s *stage) close() error {
	var errs []error
	for i := len(s.stack) - 1; i >= 0; i-- {
		errs = append(errs, s.stack[i]())
	}
	s.stack = nil
	return errors.Join(errs...)
}

// each runs n scenes: one after the other, or all at the same time in the short
// form, whose claims bear that.
func (s *stage) each(n int, scene func(i int) error) error {
	if !s.Short {
		for i := range n {
			if err := scene(i); err != nil {
				return err
			}
		}
		return nil
	}
	return together(n, scene)
}

// together runs n scenes at the same time.
func together(n int, scene func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = scene(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// unique gives a name that no other run on the same engines has; called with the
// lock.
func (s *stage) unique(kind string) string {
	if s.prefix == "" {
		s.prefix = strings.ToLower(rand.Text()[:10])
	}
	s.number++
	return fmt.Sprintf("figures-%s-%s-%d", s.prefix, kind, s.number)
}

// redis gives the configuration of the Redis of this run.
func (s *stage) redis() (redis.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.redisCfg != nil {
		return *s.redisCfg, nil
	}
	c := redis.DefaultConfig()
	if s.Redis != nil {
		c = *s.Redis
	} else {
		m, err := redismem.Start("")
		if err != nil {
			return c, err
		}
		s.stack = append(s.stack, func() error { m.Close(); return nil })
		c.Addrs = []string{m.Addr()}
	}
	c.Prefix = s.unique("guard")
	// The users share the machine with everything else here: a time-out that only
	// a fault exceeds.
	c.Timeout = max(c.Timeout, 2*time.Second)
	s.redisCfg = &c
	return c, nil
}

// kafka gives the configuration of the Kafka of this run.
func (s *stage) kafka() (kafka.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kafkaCfg != nil {
		return *s.kafkaCfg, nil
	}
	c := kafka.DefaultConfig()
	if s.Kafka != nil {
		c = *s.Kafka
	} else {
		b, err := kafkamem.Start(kafkamem.Options{Partitions: wire.PartitionsEmbedded})
		if err != nil {
			return c, err
		}
		s.stack = append(s.stack, b.Close)
		c.Brokers = []string{b.Addr()}
	}
	s.kafkaCfg = &c
	return c, nil
}

// engines names what the run was made on.
func (s *stage) engines(ctx context.Context) string {
	var parts []string
	if s.Alone {
		parts = append(parts, "one guard without Redis")
	}
	if s.redisCfg != nil {
		name := "embedded Redis"
		if s.Redis != nil {
			name = "Redis " + cmp.Or(s.redisVersion(ctx), "(version not told)")
		}
		parts = append(parts, name)
	}
	if s.kafkaCfg != nil {
		name := "embedded Kafka"
		if s.Kafka != nil {
			name = "Apache " + cmp.Or(kafkaName.FindString(s.kafkaVersion(ctx)), "Kafka (version not told)")
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, ", ")
}

// kafkaName is the part of what Kafka tells that people know.
var kafkaName = regexp.MustCompile(`Kafka [0-9][0-9.]*`)

func (s *stage) redisVersion(ctx context.Context) string {
	c, err := redis.Open(*s.redisCfg, s.Log)
	if err != nil {
		return ""
	}
	defer c.Close()
	info, err := c.Info(ctx)
	if err != nil {
		return ""
	}
	return info.Version
}

func (s *stage) kafkaVersion(ctx context.Context) string {
	a, err := kafka.NewAdmin(*s.kafkaCfg)
	if err != nil {
		return ""
	}
	defer a.Close()
	info, err := a.Cluster(ctx)
	if err != nil {
		return ""
	}
	return info.Version
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
