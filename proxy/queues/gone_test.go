package queues_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama" //nolint:depguard // what operators do to topics is no business of our adapter
	"github.com/stretchr/testify/require"

	"tidegate/pkg/kafka"
	"tidegate/proxy/queues"
)

// A topic that is deleted, and made anew with fewer partitions, leaves neither
// verdicts nor alarms of the partitions that are gone, and those do not count
// among the ones that are there.
func TestPartitionsThatAreGoneAreForgotten(t *testing.T) {
	w := newWorld(t)
	topic := w.names.Topics.Callbacks("bank")
	w.publish(3, 150)
	w.check(9)
	require.Equal(t, queues.Faulty, w.callbacks(3).Verdict)
	require.Equal(t, map[string]int{"fires queue_depth callbacks bank": 1, "fires queue_faulty callbacks bank": 1, "resolves queue_depth callbacks bank": 1}, w.told())

	w.operate(func(a sarama.ClusterAdmin) error { return a.DeleteTopic(topic) })
	require.Eventually(t, func() bool { // a cluster deletes when it likes
		infos, err := w.admin.DescribeTopics(t.Context(), []string{topic})
		return err == nil && !infos[0].Exists
	}, 40*time.Second, 20*time.Millisecond)
	w.gone(partitions)
	require.True(t, w.queue("callbacks", "bank").Missing)
	require.Equal(t, map[string]int{"resolves queue_faulty callbacks bank": 1}, w.told())

	_, err := w.admin.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: topic, Partitions: 2, Replication: 1}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		w.check(1)
		return len(w.queue("callbacks", "bank").Partitions) == 2
	}, 40*time.Second, 20*time.Millisecond)
	require.Equal(t, queues.Fine, w.queue("callbacks", "bank").Verdict)
	require.Empty(t, w.told())
}

// gone lets so much time pass that the watch has seen the topic is missing and
// its window is over.
func (w *world) gone(before int) {
	w.t.Helper()
	require.Len(w.t, w.queue("callbacks", "bank").Partitions, before)
	w.pass(time.Minute) // the watch asks for shapes once a minute
	require.Eventually(w.t, func() bool {
		w.pass(2 * time.Second)
		return w.watch.Check(w.t.Context()) == nil && len(w.queue("callbacks", "bank").Partitions) == 0
	}, 40*time.Second, 20*time.Millisecond)
}
