package dedupe_test

import (
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/dedupe"
	"tidegate/pkg/redis"
	"tidegate/pkg/redis/redismem"
)

// BenchmarkClaimAndDone is what a callback costs here: 256 at the same time,
// as many handlers as the door has in flight under load.
func BenchmarkClaimAndDone(b *testing.B) {
	addr := os.Getenv("TIDEGATE_TEST_REDIS")
	if addr == "" {
		m, err := redismem.Start("")
		require.NoError(b, err)
		b.Cleanup(m.Close)
		addr = m.Addr()
	}
	cfg := redis.DefaultConfig()
	cfg.Addrs, cfg.Prefix = []string{addr}, "bench:dedupe:"+strconv.FormatInt(time.Now().UnixNano(), 36)
	c, err := redis.Open(cfg, zap.NewNop())
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close()) })
	opt := patient()
	opt.DoneTTL = time.Minute
	s := dedupe.New(c, opt)
	var n, lost atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
				v, claim := s.Claim(b.Context(), strconv.FormatInt(i, 10)+":"+strconv.Itoa(b.N))
				if v != dedupe.Fresh || claim.Done(b.Context()) != nil {
					lost.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(b, lost.Load(), "each was the first and got its mark")
}
