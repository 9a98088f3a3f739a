package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"tidegate/pkg/fault"
)

// TopicSpec is a topic as it should be.
type TopicSpec struct {
	Name        string
	Partitions  int32 // 0: the cluster's default
	Replication int16 // 0: the cluster's default
	// Retention is how long records are kept; 0 the cluster's default, negative
	// for ever. It must be far above the longest outage (trap T31).
	Retention time.Duration
	// MinInsync is min.insync.replicas; 0 the cluster's default.
	MinInsync int
	// Config holds further topic settings by Kafka's names.
	Config map[string]string
}

func (t TopicSpec) entries() map[string]string {
	out := make(map[string]string, len(t.Config)+2)
	for k, v := range t.Config {
		out[k] = v
	}
	if t.Retention > 0 {
		out["retention.ms"] = strconv.FormatInt(t.Retention.Milliseconds(), 10)
	} else if t.Retention < 0 {
		out["retention.ms"] = "-1"
	}
	if t.MinInsync > 0 {
		out["min.insync.replicas"] = strconv.Itoa(t.MinInsync)
	}
	return out
}

func (t TopicSpec) validate() error {
	op := "create topic " + strconv.Quote(t.Name)
	if !validTopic(t.Name) {
		return fault.New(fault.Invalid, op, "a name has 1 to 249 letters, digits, '.', '_' and '-'")
	}
	if t.Partitions < 0 || t.Replication < 0 || t.MinInsync < 0 || int(t.Replication) < t.MinInsync && t.Replication > 0 {
		return fault.New(fault.Invalid, op, "partitions %d, replication %d and min.insync.replicas %d cannot be: none is negative, and the last is not above replication",
			t.Partitions, t.Replication, t.MinInsync)
	}
	return nil
}

// Difference is a setting of an existing topic that is not as wished. Nothing
// was changed: a new partition count would move keys to other partitions, and
// the rest is the operator's decision.
type Difference struct {
	Topic, Setting, Have, Want string
}

// String says it in words.
func (d Difference) String() string {
	return fmt.Sprintf("topic %s: %s is %s, wanted %s", d.Topic, d.Setting, d.Have, d.Want)
}

// Ensured tells what EnsureTopics did and what it found.
type Ensured struct {
	Created     []string
	Differences []Difference
}

// TopicInfo is a topic as it is. Values that the cluster did not tell are zero.
type TopicInfo struct {
	Name           string
	Exists         bool
	Partitions     int32
	Replication    int16 // the smallest of its partitions
	MinInsync      int
	Retention      time.Duration // negative: for ever
	RetentionBytes int64         // negative: unlimited
	Config         map[string]string
}

// DescribeTopics gives the named topics in the same order; Exists tells those
// that are missing.
func (a *Admin) DescribeTopics(ctx context.Context, names []string) ([]TopicInfo, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var out []TopicInfo
	err := a.ask(ctx, "describe topics", func(c *adminConn) error {
		metas, err := c.admin.DescribeTopics(names)
		if err != nil {
			return err
		}
		infos := make([]TopicInfo, len(names))
		for i, n := range names {
			infos[i].Name = n
		}
		var found []*sarama.ConfigResource
		for _, m := range metas {
			i := slices.Index(names, m.Name)
			switch {
			case i < 0 || errors.Is(m.Err, sarama.ErrUnknownTopicOrPartition):
				continue
			case !errors.Is(m.Err, sarama.ErrNoError):
				return fmt.Errorf("topic %s: %w", m.Name, m.Err)
			}
			infos[i].shape(m)
			found = append(found, &sarama.ConfigResource{Type: sarama.TopicResource, Name: m.Name})
		}
		if err := settings(c.admin, found, names, infos); err != nil {
			return err
		}
		out = infos
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (t *TopicInfo) shape(m *sarama.TopicMetadata) {
	t.Exists, t.Partitions = true, int32(len(m.Partitions))
	for i, p := range m.Partitions {
		if n := int16(len(p.Replicas)); i == 0 || n < t.Replication {
			t.Replication = n
		}
	}
}

func settings(admin sarama.ClusterAdmin, found []*sarama.ConfigResource, names []string, infos []TopicInfo) error {
	if len(found) == 0 {
		return nil
	}
	results, err := admin.DescribeConfigs(found, sarama.DescribeConfigsOptions{})
	if err != nil {
		return err
	}
	for _, r := range results {
		i := slices.Index(names, r.Name)
		if i < 0 {
			continue
		}
		if !errors.Is(r.ErrorCode, sarama.ErrNoError) {
			return fmt.Errorf("settings of topic %s: %w", r.Name, r.ErrorCode)
		}
		infos[i].Config = make(map[string]string, len(r.Configs))
		for _, e := range r.Configs {
			infos[i].Config[e.Name] = e.Value
		}
		infos[i].read()
	}
	return nil
}

// read takes the settings that decide about loss out of Config.
func (t *TopicInfo) read() {
	if n, err := strconv.Atoi(t.Config["min.insync.replicas"]); err == nil {
		t.MinInsync = n
	}
	if ms, err := strconv.ParseInt(t.Config["retention.ms"], 10, 64); err == nil {
		const most = int64(1<<63-1) / int64(time.Millisecond)
		t.Retention = time.Duration(min(ms, most)) * time.Millisecond
	}
	if n, err := strconv.ParseInt(t.Config["retention.bytes"], 10, 64); err == nil {
		t.RetentionBytes = n
	}
}
