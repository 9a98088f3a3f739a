//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
	"tidegate/test/chaos/herd"
)

// engines are what all scenarios of a run break in turn. Each scenario leaves
// them running.
type engines struct {
	herd  *herd.Herd
	kafka *herd.Engine // Apache's
	node  *herd.Engine // ours
	redis *herd.Engine
	slow  float64 // how many times slower than a quiet machine; at least 1
}

func startEngines(t *testing.T) *engines {
	t.Helper()
	_, err := builds.Tidegate()
	require.NoError(t, err)
	h := herd.New(t)
	e := &engines{herd: h, redis: h.Redis(root), node: h.Node(builds)}
	e.kafka = h.Kafka(root)
	e.slow = calibrate(t, e)
	return e
}

// What a quiet machine with two cores needs for one of 2,500 SETs of 16 clients,
// and for one of 2,500 records of 256 callers.
const (
	quietSet     = 40 * time.Microsecond
	quietProduce = 60 * time.Microsecond
)

// calibrate measures the machine with what else runs on it. Its result widens
// deadlines and lowers rates, and changes no promise.
func calibrate(t *testing.T, e *engines) float64 {
	t.Helper()
	set, produce := time.Hour, time.Hour
	write, publish := settings(t, e.redis.Addr), produces(t, e.kafka.Addr)
	for range 4 { // the first ones warm a JVM up
		set = min(set, measure(2500, 16, write))
		produce = min(produce, measure(2500, 256, publish))
	}
	slow := max(1, float64(set)/float64(quietSet), float64(produce)/float64(quietProduce))
	t.Logf("CI: calibration: %s per SET, %s per record: deadlines x %.1f", set.Round(time.Microsecond), produce.Round(time.Microsecond), slow)
	return slow
}

// measure gives the time per call.
func measure(n, callers int, do func(i int)) time.Duration {
	var wg sync.WaitGroup
	began := time.Now()
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				do(i)
			}
		})
	}
	wg.Wait()
	return time.Since(began) / time.Duration(n)
}

func settings(t *testing.T, addr string) func(int) {
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Prefix, cfg.Timeout = []string{addr}, "calibration", 5*time.Second
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return func(i int) {
		if err := c.Set(t.Context(), fmt.Sprint(i), "x", time.Minute); err != nil {
			t.Error(err)
		}
	}
}

func produces(t *testing.T, addr string) func(int) {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{addr}
	a, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	_, err = a.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: "calibration", Partitions: 4, Replication: 1, MinInsync: 1, Retention: time.Hour}})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{MaxBlock: 20 * time.Second}, zap.NewNop(), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = p.Close(ctx)
	})
	publish := func(i int) {
		if _, err := p.Publish(t.Context(), kafka.Record{Topic: "calibration", Key: fmt.Append(nil, i), Value: make([]byte, 1200)}); err != nil {
			t.Error(err)
		}
	}
	publish(0) // the connection
	return publish
}

// mend brings back what a scenario that failed has left broken, so that the
// next one is not blamed for it.
func (e *engines) mend(t *testing.T) {
	t.Helper()
	for _, p := range []*herd.Engine{e.redis, e.node, e.kafka} {
		p.Resume()
		if !p.Running() {
			p.Restart()
		}
	}
}

// emptyRedis starts a killed Redis without anything that it knew.
func (e *engines) emptyRedis() {
	if err := os.RemoveAll(filepath.Join(e.herd.Dir, "engines", "redis", "data")); err != nil {
		panic(err)
	}
	e.redis.Restart()
}
