package queues

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/kafka"
)

// survey lets a set take and judge what is measured of some partitions: all
// stand still with so many records.
func (s *set) survey(now time.Time, topic kafka.TopicInfo, lags map[int32]int64) {
	var st kafka.Standing
	for p, n := range lags {
		l := lagOf(0, n)
		l.Topic, l.Partition = s.queue.Topic, p
		st.Lags = append(st.Lags, l)
	}
	s.take(st, now)
	s.judge(Config{DepthMode: Corrected}, topic, now)
}

func faultyOf(s *set) (out []int32) {
	for _, p := range s.partitions {
		if p.verdict == Faulty {
			out = append(out, p.lag.Partition)
		}
	}
	return out
}

// A partition without a leader keeps its alarm, for what waits in it still
// waits; but it does not make an overload of what is measured.
func TestAPartitionWithoutALeaderKeepsItsVerdictAndDoesNotCount(t *testing.T) {
	s := newSet(Queue{Name: "callbacks", Topic: "t"}, Config{Limits: limits, Window: 30 * time.Second})
	topic := kafka.TopicInfo{Exists: true, Partitions: 4}
	now := t0
	for range 20 {
		now = now.Add(2 * time.Second)
		s.survey(now, topic, map[int32]int64{0: 1500, 1: 1500, 2: 10, 3: 10})
	}
	require.Equal(t, []int32{0, 1}, faultyOf(s))
	for i := range 40 { // 0 and 1 lose their leader; when their window is over, 2 becomes deep
		now = now.Add(2 * time.Second)
		depth := int64(10)
		if i >= 20 {
			depth = 1500
		}
		s.survey(now, topic, map[int32]int64{2: depth, 3: 10})
	}
	require.False(t, s.bench.overload.open, "one of the two that are measured is not more than half")
	require.Equal(t, []int32{0, 1, 2}, faultyOf(s))

	topic.Partitions = 1 // made anew: 1 is gone, and so are 2 and 3 once their window is over
	now = now.Add(2 * time.Second)
	s.survey(now, topic, nil)
	require.Equal(t, []int32{0, 2}, faultyOf(s))
	now = now.Add(30 * time.Second)
	s.survey(now, topic, nil)
	require.Equal(t, []int32{0}, faultyOf(s))
	require.Len(t, s.bench.seats, 1)
}
