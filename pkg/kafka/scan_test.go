package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

func scan(t *testing.T, cfg kafka.Config, topic string, since time.Time) (out []kafka.Record) {
	t.Helper()
	require.NoError(t, kafka.Scan(t.Context(), cfg, topic, since, func(r kafka.Record) error {
		out = append(out, r)
		return nil
	}))
	return out
}

// A scan sees what is there, each partition in order, ends although more comes,
// and can begin at a time.
func TestScan(t *testing.T) {
	cfg := engine(t)
	name := topic(t, cfg, 3)
	require.Empty(t, scan(t, cfg, name, time.Time{}), "an empty topic ends at once")
	p := producer(t, cfg, kafka.ProducerOptions{})
	var middle time.Time
	for i := range 20 {
		if i == 10 {
			middle = time.Now().Add(time.Hour) // timestamps are ours, so no time has to pass
		}
		r := kafka.Record{Topic: name, Key: fmt.Append(nil, "k", i%7), Value: fmt.Append(nil, i), Headers: []kafka.Header{{Key: "h", Value: []byte{byte(i)}}}}
		if i >= 10 {
			r.Timestamp = middle
		}
		_, err := p.Publish(t.Context(), r)
		require.NoError(t, err)
	}
	all := scan(t, cfg, name, time.Time{})
	require.Len(t, all, 20)
	next := map[int32]int64{}
	for _, r := range all {
		require.Equal(t, next[r.Partition], r.Offset)
		next[r.Partition]++
	}
	require.Equal(t, fmt.Sprint(all[0].Header("h")[0]), string(all[0].Value), "headers are there")
	require.Len(t, scan(t, cfg, name, middle), 10)
	require.Empty(t, scan(t, cfg, name, middle.Add(time.Hour)))

	n := 0
	require.NoError(t, kafka.Scan(t.Context(), cfg, name, time.Time{}, func(r kafka.Record) error {
		n++
		_, err := p.Publish(t.Context(), kafka.Record{Topic: name, Key: r.Key, Value: []byte("more")})
		return err
	}))
	require.Less(t, n, 20*3, "it does not run after what comes")
}

func TestScanEnds(t *testing.T) {
	cfg := engine(t)
	err := kafka.Scan(t.Context(), cfg, unique(t, "nothing"), time.Time{}, nil)
	require.Equal(t, fault.NotFound, fault.KindOf(err), "%v", err)
	name := topic(t, cfg, 1)
	p := producer(t, cfg, kafka.ProducerOptions{})
	for range 3 {
		publish(t, p, name, "k", "v")
	}
	enough := errors.New("enough")
	n := 0
	require.Equal(t, enough, kafka.Scan(t.Context(), cfg, name, time.Time{}, func(kafka.Record) error {
		n++
		return enough
	}), "the caller's error comes back as it is")
	require.Equal(t, 1, n)
	ctx, cancel := context.WithCancel(t.Context())
	err = kafka.Scan(ctx, cfg, name, time.Time{}, func(kafka.Record) error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
}
