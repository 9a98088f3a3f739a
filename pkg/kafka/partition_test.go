package kafka_test

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"tidegate/pkg/kafka"
)

// The hashes that Apache Kafka's own tests expect of its Java client.
func TestPartitionIsJavasMurmur2(t *testing.T) {
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		require.Equal(t, (hash&math.MaxInt32)%math.MaxInt32, kafka.Partition([]byte(key), math.MaxInt32), key)
	}
}

// Trap T22: 1,000 fixed keys, computed by the Java client, and what the producer
// here really does.
func TestPartitionOfFixedKeys(t *testing.T) {
	raw, err := os.ReadFile("testdata/partitions.tsv")
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), "\t")
		require.Len(t, f, 4)
		n++
		for i, parts := range []int32{4, 12, 1000003} {
			want, err := strconv.Atoi(f[i+1])
			require.NoError(t, err)
			require.EqualValues(t, want, kafka.Partition([]byte(f[0]), parts), f[0])
			got, err := sarama.NewMurmur2Partitioner("t").Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder(f[0])}, parts)
			require.NoError(t, err)
			require.EqualValues(t, want, got, f[0])
		}
	}
	require.Equal(t, 1000, n)
	require.Panics(t, func() { kafka.Partition([]byte("k"), 0) })
}
