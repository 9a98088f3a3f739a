package deadletters_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/app/deadletters"
	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/wire"
)

// A room that dies between a dead letter and its commit writes the letter again:
// it is one letter, of which the first is shown.
func TestALetterThatWasWrittenTwiceIsOne(t *testing.T) {
	broker, err := kafkamem.Start(kafkamem.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	cfg, topics := kafka.DefaultConfig(), wire.Topics{Prefix: "twice"}
	cfg.Brokers = []string{broker.Addr()}
	admin, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, admin.Close()) }()
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: topics.DeadLetters(), Partitions: 1, Replication: 1}})
	require.NoError(t, err)
	out, err := kafka.NewProducer(cfg, kafka.ProducerOptions{}, nil, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, out.Close(t.Context())) }()
	for _, l := range []wire.DeadLetter{
		{ID: "a", Offset: 1, At: 1000}, {ID: "b", Offset: 2, At: 2000}, {ID: "a", Offset: 1, At: 3000}, {ID: "a", Offset: 3, At: 4000},
	} {
		l.Account, l.Room, l.Reason, l.Topic, l.Value = "card", "robot", "core is away", topics.Callbacks("card"), []byte("{}")
		key, value, headers, err := wire.Encode(&l)
		require.NoError(t, err)
		_, err = out.Publish(t.Context(), kafka.Record{Topic: topics.DeadLetters(), Key: key, Value: value, Headers: headers})
		require.NoError(t, err)
	}
	list, err := deadletters.Book{Kafka: cfg, Topics: topics}.List(t.Context(), deadletters.Filter{}, 10)
	require.NoError(t, err)
	require.Equal(t, 3, list.Total, "another record with the same message is another letter")
	require.Equal(t, []deadletters.Count{{Account: "card", Room: "robot", Reason: "core is away", Letters: 3}}, list.Counts)
	var at []int64
	for _, l := range list.Letters {
		at = append(at, l.At)
	}
	require.Equal(t, []int64{4000, 2000, 1000}, at)
}
