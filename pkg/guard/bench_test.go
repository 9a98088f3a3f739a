package guard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/guard"
)

// What a guard costs per request: below the threshold, and for a value that is
// there (one question to Redis for all callers of a moment).
func BenchmarkDo(b *testing.B) {
	c := opener(b)(engine(b))
	for _, bench := range []struct {
		name      string
		threshold int64
	}{{"pass", 1 << 39}, {"hit", 0}} {
		b.Run(bench.name, func(b *testing.B) {
			cfg := config()
			cfg.Backend, cfg.Threshold, cfg.Gate = "bench-"+bench.name, bench.threshold, 100000
			g, err := guard.New(cfg, guard.Deps{Redis: c})
			require.NoError(b, err)
			defer g.Close()
			fetch := func(context.Context) ([]byte, error) { return []byte("value"), nil }
			b.ReportAllocs()
			b.SetParallelism(50)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := g.Do(context.Background(), "a", fetch); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
