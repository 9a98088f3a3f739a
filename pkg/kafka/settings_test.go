package kafka_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/kafka"
)

func TestSettingsNameWhatSaramaIsTold(t *testing.T) {
	cfg := kafka.DefaultConfig()
	group, err := kafka.GroupSettings(cfg, kafka.GroupOptions{SessionTimeout: 7 * time.Second})
	require.NoError(t, err)
	require.Equal(t, "7s", group["Consumer.Group.Session.Timeout"])
	require.Equal(t, "false", group["Metadata.AllowAutoTopicCreation"])
	require.Greater(t, len(group), 80, "all of them")
	producer, err := kafka.ProducerSettings(cfg, kafka.ProducerOptions{})
	require.NoError(t, err)
	require.Equal(t, "true", producer["Producer.Idempotent"])
	require.Equal(t, "set", producer["Producer.Partitioner"])
	require.Equal(t, "lz4", producer["Producer.Compression"])

	conf := sarama.NewConfig()
	require.Empty(t, kafka.Differences(kafka.SettingsOf(conf), kafka.SettingsOf(sarama.NewConfig())), "two of the same do not differ")
	conf.Consumer.Fetch.Default++
	require.Equal(t, []string{`Consumer.Fetch.Default: "1048576" and "1048577"`}, kafka.Differences(kafka.SettingsOf(sarama.NewConfig()), kafka.SettingsOf(conf)))
}
