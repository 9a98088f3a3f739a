package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

// owner is a context that is looked at before each record, and lost after some.
type owner struct {
	context.Context
	mu    sync.Mutex
	looks int
	lost  int // at this look, 0 for never
}

func (o *owner) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.looks++; o.lost > 0 && o.looks >= o.lost {
		return context.Canceled
	}
	return nil
}

func (o *owner) Value(any) any { return nil }

// endOf is the number of records of a topic.
func endOf(t *testing.T, cfg kafka.Config, name string) (n int64) {
	t.Helper()
	rows, err := admin(t, cfg).Lag(t.Context(), "reads.nothing", []string{name})
	require.NoError(t, err)
	for _, r := range rows {
		n += max(r.End, 0)
	}
	return n
}

func TestPublishInTurn(t *testing.T) {
	cfg := engine(t)
	one, two := topic(t, cfg, 1), topic(t, cfg, 1)
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{MaxRecordBytes: 1000}, nil, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(context.Background())) }()
	// Connected: from here on a failure is one of the record.
	_, err = p.Publish(t.Context(), kafka.Record{Topic: one, Key: []byte("k")})
	require.NoError(t, err)
	records := func(values ...string) (rs []kafka.Record) {
		for i, v := range values {
			rs = append(rs, kafka.Record{Topic: []string{one, two}[i%2], Key: []byte("k"), Value: []byte(v)})
		}
		return rs
	}
	ends := func() (a, b int64) { return endOf(t, cfg, one), endOf(t, cfg, two) }
	const patient = 20 * time.Second

	n, err := p.PublishInTurn(t.Context(), nil, patient)
	require.NoError(t, err)
	require.Zero(t, n)

	look := &owner{Context: t.Context()}
	n, err = p.PublishInTurn(look, records("1", "2", "3"), patient)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.GreaterOrEqual(t, look.looks, 3, "the owner is asked before each")
	a, b := ends()
	require.EqualValues(t, 3, a)
	require.EqualValues(t, 1, b)

	n, err = p.PublishInTurn(t.Context(), records("4", strings.Repeat("x", 2000), "never"), patient)
	require.Equal(t, 1, n, "what is durable is told")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	require.ErrorContains(t, err, "after 1 of 3")

	n, err = p.PublishInTurn(&owner{Context: t.Context(), lost: 1}, records("never"), patient)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, n)
	n, err = p.PublishInTurn(&owner{Context: t.Context(), lost: 2}, records("never"), patient)
	require.ErrorIs(t, err, context.Canceled, "lost while it stood in line")
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "so it was not written")
	require.Zero(t, n)
	n, err = p.PublishInTurn(&owner{Context: t.Context(), lost: 3}, records("5", "never", "never"), patient)
	require.ErrorIs(t, err, context.Canceled, "lost while the first was under way")
	require.Equal(t, 1, n)

	a, b = ends()
	require.EqualValues(t, 5, a, "the first of each and nothing behind what failed")
	require.EqualValues(t, 1, b)
}

// Nothing is handed over for a caller who does not wait any more.
func TestPublishInTurnGivesUp(t *testing.T) {
	cfg := engine(t)
	one, two := topic(t, cfg, 1), topic(t, cfg, 1)
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{}, nil, nil)
	require.NoError(t, err)
	_, err = p.Publish(t.Context(), kafka.Record{Topic: one, Key: []byte("k")})
	require.NoError(t, err)
	rs := []kafka.Record{{Topic: one, Key: []byte("k")}, {Topic: two, Key: []byte("k")}}
	n, err := p.PublishInTurn(t.Context(), rs, time.Nanosecond)
	require.Less(t, n, 2)
	require.Contains(t, []fault.Kind{fault.Ambiguous, fault.Unavailable}, fault.KindOf(err))
	require.NoError(t, p.Close(context.Background()), "and what was under way has come to its end")
	require.Zero(t, endOf(t, cfg, two), "nothing came behind")
}

func TestPublishInTurnWithoutKafka(t *testing.T) {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{"127.0.0.1:1"}
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{MaxBlock: 50 * time.Millisecond}, nil, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(context.Background())) }()
	n, err := p.PublishInTurn(t.Context(), []kafka.Record{{Topic: "turn"}}, time.Minute)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Zero(t, n)
}

// What is used again for the next call keeps nothing of the one before.
func TestPublishInTurnManyTimes(t *testing.T) {
	cfg := engine(t)
	one, two := topic(t, cfg, 1), topic(t, cfg, 1)
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{}, nil, nil)
	require.NoError(t, err)
	const callers, calls = 16, 40
	lost, none := context.WithCancel(t.Context())
	none()
	var wg sync.WaitGroup
	published, failed := make(chan int, callers*calls), make(chan error, callers*calls)
	for range callers {
		wg.Go(func() {
			for i := range calls {
				ctx, limit, rs := t.Context(), 20*time.Second, []kafka.Record{{Topic: one, Key: []byte("k")}, {Topic: two, Key: []byte("k")}}
				switch i % 4 {
				case 1:
					limit = time.Microsecond
				case 2:
					rs = rs[:1]
				case 3:
					ctx = lost
				}
				n, err := p.PublishInTurn(ctx, rs, limit)
				switch {
				case i%4 == 0 || i%4 == 2:
					if n != len(rs) || err != nil {
						failed <- fmt.Errorf("%d of %d: %w", n, len(rs), err)
					}
				case n == len(rs) && err == nil && i%4 == 1: // quicker than its limit
				case n == len(rs) || err == nil:
					failed <- fmt.Errorf("call %d: %d of %d published, and no error", i%4, n, len(rs))
				}
				published <- n
			}
		})
	}
	wg.Wait()
	require.NoError(t, p.Close(context.Background()))
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	close(published)
	told := 0
	for n := range published {
		told += n
	}
	written := endOf(t, cfg, one) + endOf(t, cfg, two)
	require.GreaterOrEqual(t, told, callers*calls/4*3)
	require.GreaterOrEqual(t, written, int64(told), "all that was told is there")
	require.LessOrEqual(t, written, int64(told+callers*calls/4), "and of a call that gave up one record at most")
}
