package ratelimit

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFraction(t *testing.T) {
	for _, c := range []struct {
		rate     float64
		num, den int64
	}{{1019.0 / 60, 1019, 60}, {200, 200, 1}, {0.1, 1, 10}, {1.0 / 3, 1, 3}, {7919.0 / 3600, 7919, 3600}, {1e6, 1000000, 1}, {1e-6, 1, 1000000}, {2.5, 5, 2}} {
		num, den := fraction(c.rate)
		require.Equal(t, []int64{c.num, c.den}, []int64{num, den}, "%v", c.rate)
	}
	rapid.Check(t, func(r *rapid.T) {
		rate := rapid.Float64Range(minRate, maxRate).Draw(r, "rate")
		num, den := fraction(rate)
		if math.Abs(float64(num)/float64(den)-rate) > rate*1e-9 || den < 1 || den > 1e9 || num < 1 {
			r.Fatalf("%v became %d/%d", rate, num, den)
		}
	})
}

func TestExtremeLimitsDoNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []Limit{
			{Rate: minRate, Burst: maxBurst}, {Rate: maxRate, Burst: maxBurst}, {Rate: 123456.789012345, Burst: maxBurst},
			{Rate: math.NaN()}, {Rate: -1}, {Rate: math.Inf(1), Burst: math.MaxInt}, {Rate: 1e-300, Burst: -5, Concurrency: -1},
		} {
			lim := New(l)
			ctx, cancel := context.WithTimeout(t.Context(), 100*24*time.Hour)
			release, err := lim.Acquire(ctx, math.MinInt)
			require.NoError(t, err, "%+v", l)
			release()
			lim.SetLimit(Limit{Rate: 1, Burst: 3})
			lim.SetLimit(l)
			cancel()
		}
	})
}

func TestValidateNamesTheField(t *testing.T) {
	require.NoError(t, Limit{}.Validate())
	require.NoError(t, Limit{Rate: 1019.0 / 60, Burst: 20, Concurrency: 64}.Validate())
	require.ErrorContains(t, Limit{Rate: math.NaN()}.Validate(), "rate")
	require.ErrorContains(t, Limit{Rate: 2e6}.Validate(), "rate")
	require.ErrorContains(t, Limit{Burst: -1}.Validate(), "burst")
	require.ErrorContains(t, Limit{Rate: 1e-6, Burst: 1e6}.Validate(), "burst")
	require.ErrorContains(t, Limit{Concurrency: -1}.Validate(), "concurrency")
}

func BenchmarkAcquireFree(b *testing.B) {
	l := New(Limit{Rate: maxRate, Burst: maxBurst, StartFull: true, Concurrency: 1 << 20})
	for b.Loop() {
		release, err := l.Acquire(context.Background(), 0)
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}

func BenchmarkAcquireContended(b *testing.B) {
	l := New(Limit{Concurrency: 4})
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			release, err := l.Acquire(context.Background(), 0)
			if err != nil {
				b.Error(err)
			}
			release()
		}
	})
}
