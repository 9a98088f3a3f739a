package kafka_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
)

// Two groups of one topic, and one that never committed: the survey gives what
// Lag gives, and who holds what.
func TestSurveyMeasuresManyGroups(t *testing.T) {
	cfg := engine(t)
	tp, other := topic(t, cfg, 2), topic(t, cfg, 1)
	p := producer(t, cfg, kafka.ProducerOptions{})
	for i := range 6 {
		publish(t, p, tp, keyFor(1, 2, 0), strconv.Itoa(i))
	}
	publish(t, p, other, "k", "v")
	a, quick, never := admin(t, cfg), unique(t, "quick"), unique(t, "never")
	done := make(chan string, 20)
	g := run(t, cfg, kafka.GroupOptions{Group: quick, Topics: []string{tp}, Handler: func(_ context.Context, r kafka.Record) error {
		done <- string(r.Value)
		return nil
	}})
	for range 6 {
		wait(t, done, "six records")
	}
	owners, err := a.Owners(t.Context(), []string{quick, never})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(owners[quick][tp][1], "tidegate at 127.0.0.1"), "%q", owners[quick])
	require.Len(t, owners[quick][tp], 2)
	require.Contains(t, owners, never, "a group that is not there has no owners, which is known")
	require.Empty(t, owners[never])
	g.stop()

	readings := []kafka.Reading{
		{Group: never, Topics: map[string]int32{tp: 2, other: 1}},
		{Group: quick, Topics: map[string]int32{tp: 2}},
	}
	got, err := a.Survey(t.Context(), readings)
	require.NoError(t, err)
	require.Len(t, got, 2)
	for i, r := range readings {
		require.NoError(t, got[i].Err)
		require.Equal(t, r.Group, got[i].Group)
		var topics []string
		for name := range r.Topics {
			topics = append(topics, name)
		}
		want, err := a.Lag(t.Context(), r.Group, topics)
		require.NoError(t, err)
		require.Equal(t, want, got[i].Lags)
	}
	require.Equal(t, int64(6), got[1].Lags[1].Committed, "stopping has committed")
	owners, err = a.Owners(t.Context(), []string{quick})
	require.NoError(t, err)
	require.Empty(t, owners[quick], "and left the group")

	// A topic that is not there costs only itself.
	got, err = a.Survey(t.Context(), []kafka.Reading{{Group: quick, Topics: map[string]int32{tp: 2, unique(t, "none"): 2}}})
	require.NoError(t, err)
	require.Len(t, got[0].Lags, 2)
}

// Times are right to a twentieth, for young and old records, and for several of a
// partition.
func TestWrittenAt(t *testing.T) {
	cfg := engine(t)
	tp := topic(t, cfg, 2)
	p := producer(t, cfg, kafka.ProducerOptions{})
	now := time.Now().Truncate(time.Millisecond)
	ages := []time.Duration{40 * time.Hour, time.Hour, 61 * time.Minute / 60, 20 * time.Second, 19 * time.Second, 0}
	for i, age := range ages {
		_, err := p.Publish(t.Context(), kafka.Record{Topic: tp, Key: []byte(keyFor(1, 2, 0)), Value: []byte(strconv.Itoa(i)), Timestamp: now.Add(-age)})
		require.NoError(t, err)
	}
	places := []kafka.Place{{Topic: unique(t, "none")}}
	for i := range ages {
		places = append(places, kafka.Place{Topic: tp, Partition: 1, Offset: int64(i)})
	}
	at, err := admin(t, cfg).WrittenAt(t.Context(), places, now)
	require.NoError(t, err)
	require.Len(t, at, len(ages), "nothing is said of a topic that is not there")
	for i, age := range ages {
		got, ok := at[kafka.Place{Topic: tp, Partition: 1, Offset: int64(i)}]
		require.True(t, ok, "%v", at)
		require.InDelta(t, age.Seconds(), now.Sub(got).Seconds(), age.Seconds()/19+0.6, "record %d", i)
		require.GreaterOrEqual(t, now.Sub(got), age, "never younger than it is")
	}
}

// A broker that goes away is an error at once or after its time-outs, and the
// survey works again when it is back: no connection is left half-dead.
func TestSurveyOutlivesTheBroker(t *testing.T) {
	opt := kafkamem.Options{Dir: t.TempDir()}
	b, err := kafkamem.Start(opt)
	require.NoError(t, err)
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{b.Addr()}
	tp := topic(t, cfg, 2)
	a := admin(t, cfg)
	readings := []kafka.Reading{{Group: "g", Topics: map[string]int32{tp: 2}}}
	_, err = a.Survey(t.Context(), readings)
	require.NoError(t, err)

	require.NoError(t, b.Close())
	_, err = a.Survey(t.Context(), readings)
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "%v", err)

	// Somebody accepts at its address and says nothing.
	ln, err := net.Listen("tcp", cfg.Brokers[0])
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = a.Survey(ctx, readings)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, ln.Close())

	b, err = kafkamem.Start(opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.Eventually(t, func() bool {
		got, err := a.Survey(t.Context(), readings)
		return err == nil && len(got[0].Lags) == 2
	}, 30*time.Second, 50*time.Millisecond)
}
