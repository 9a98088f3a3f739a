package kafka

import (
	"fmt"
	"strings"

	"github.com/IBM/sarama"
)

// metadataLevels gives the first metadata.version of each Kafka release, newest
// first, as Kafka 4.3.0 lists them.
var metadataLevels = [...]struct {
	level   int16
	release string
}{
	{30, "4.3"}, {28, "4.2"}, {26, "4.1"}, {22, "4.0"}, {21, "3.9"}, {20, "3.8"},
	{15, "3.7"}, {12, "3.6"}, {9, "3.5"}, {8, "3.4"}, {7, "3.3"},
}

// versionOf asks a broker which protocol it speaks.
func versionOf(client sarama.Client, id int32) (string, error) {
	b, err := client.Broker(id)
	if err != nil {
		return "", err
	}
	res, err := b.ApiVersions(&sarama.ApiVersionsRequest{Version: 3, ClientSoftwareName: "tidegate", ClientSoftwareVersion: "1"})
	if err != nil {
		return "", err
	}
	if res.ErrorCode != int16(sarama.ErrNoError) {
		return "", sarama.KError(res.ErrorCode)
	}
	var parts []string
	for _, f := range res.FinalizedFeatures {
		if f.Name == "metadata.version" {
			parts = append(parts, fmt.Sprintf("metadata.version %d%s", f.MaxVersionLevel, releaseOf(f.MaxVersionLevel)))
		}
	}
	for _, k := range res.ApiKeys {
		if k.ApiKey == 0 {
			parts = append(parts, fmt.Sprintf("produce api %d", k.MaxVersion))
		}
	}
	return strings.Join(parts, ", "), nil
}

func releaseOf(level int16) string {
	for i, m := range metadataLevels {
		if level >= m.level {
			if i == 0 && level > m.level {
				return " (Kafka " + m.release + " or newer)"
			}
			return " (Kafka " + m.release + ")"
		}
	}
	return ""
}
