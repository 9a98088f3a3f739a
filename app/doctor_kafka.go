package app

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/kafka"
)

// letterBytes is the largest record that the rooms publish (T13).
const letterBytes = 1_000_000

// checkKafka asks the cluster what it is and how our topics stand.
func (d *doctor) checkKafka(ctx context.Context) []finding {
	name := "kafka " + strings.Join(d.cfg.Kafka.Brokers, ",")
	c := d.cfg.Kafka
	c.DialTimeout, c.RequestTimeout = time.Second, doctorTimeout // so that no question outlives us for long
	admin, err := kafka.NewAdmin(c)
	if err != nil {
		return []finding{fail("correct the kafka section", "%s: %v", name, err)}
	}
	defer closeSoon(admin)
	cluster, err := admin.Cluster(ctx)
	if err != nil {
		return []finding{kafkaAway(name, err)}
	}
	out := d.judgeCluster(ctx, name, cluster)
	specs := d.cfg.topicSpecs()
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	infos, err := admin.DescribeTopics(ctx, names)
	if err != nil {
		return append(out, fail("the login needs Describe and DescribeConfigs on topics with the prefix", "%s: topics: %v", name, err))
	}
	return append(out, judgeTopics(specs, infos, len(cluster.Brokers))...)
}

// closeSoon does not let a broker that hangs keep the doctor: what is left
// ends with the process.
func closeSoon(admin *kafka.Admin) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = admin.Close()
	}()
	select {
	case <-closed:
	case <-time.After(doctorTimeout):
	}
}

func kafkaAway(name string, err error) finding {
	if fault.KindOf(err) == fault.Denied {
		return fail("correct kafka.sasl, or let an administrator add the user", "%s: %v", name, err)
	}
	return fail("start it, or correct kafka.brokers, kafka.tls and kafka.sasl", "%s does not answer: %v", name, err)
}

func (d *doctor) judgeCluster(ctx context.Context, name string, c kafka.ClusterInfo) []finding {
	out := []finding{ok("%s: %d brokers, %s", name, len(c.Brokers), c.Version)}
	if len(c.Brokers) == 1 {
		out = append(out, warn("use three brokers in production", "%s is a single broker: when its disk is lost, so is what waits in it", name))
	}
	if away := unreachable(ctx, c.Brokers); len(away) > 0 {
		out = append(out, fail("correct advertised.listeners of the brokers, or open the way to them", "%s: the cluster names brokers that cannot be reached from here: %s", name, strings.Join(away, ", ")))
	}
	if away := unreachable(ctx, d.cfg.Kafka.Brokers); len(away) > 0 {
		out = append(out, warn("start them or correct kafka.brokers", "%s: no answer from %s; the others answer", name, strings.Join(away, ", ")))
	}
	if d.cfg.Kafka.SASL.Mechanism == "" && !allLoopback(d.cfg.Kafka.Brokers) {
		out = append(out, warn("set up SASL on the brokers and in kafka.sasl", "%s lets everybody in who reaches it", name))
	} else if !d.cfg.Kafka.TLS.Enabled && !allLoopback(d.cfg.Kafka.Brokers) {
		out = append(out, warn("set kafka.tls.enabled, unless the network is private", "%s: messages of users travel unencrypted", name))
	}
	return out
}

// unreachable dials addresses ("host:port", or "id host:port") and gives those
// that no connection comes about with.
func unreachable(ctx context.Context, brokers []string) []string {
	failed := make([]bool, len(brokers))
	var all sync.WaitGroup
	for i, b := range brokers {
		all.Go(func() {
			dialer := net.Dialer{Timeout: doctorTimeout / 3}
			conn, err := dialer.DialContext(ctx, "tcp", b[strings.LastIndexByte(b, ' ')+1:])
			if failed[i] = err != nil; err == nil {
				_ = conn.Close()
			}
		})
	}
	all.Wait()
	var away []string
	for i, b := range brokers {
		if failed[i] {
			away = append(away, b[strings.LastIndexByte(b, ' ')+1:])
		}
	}
	return away
}

// judgeTopics compares the topics with what the configuration says. Topics
// with the same trouble share a line.
func judgeTopics(specs []kafka.TopicSpec, infos []kafka.TopicInfo, brokers int) []finding {
	var order []finding
	topics := map[finding][]string{}
	for i, t := range infos {
		for _, c := range judgeTopic(specs[i], t, brokers) {
			if topics[c] == nil {
				order = append(order, c)
			}
			topics[c] = append(topics[c], t.Name)
		}
	}
	var out []finding
	failed := false
	for _, c := range order {
		failed = failed || c.grade == gradeFail
		out = append(out, finding{c.grade, "kafka topics: " + c.what + ": " + firstOf(topics[c], 4), c.todo})
	}
	if !failed {
		out = append(out, ok("kafka topics: all %d exist", len(infos)))
	}
	return out
}

func firstOf(names []string, n int) string {
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}

func judgeTopic(want kafka.TopicSpec, t kafka.TopicInfo, brokers int) []finding {
	if !t.Exists {
		todo := "run 'tidegate topics'"
		if int(want.Replication) > brokers {
			todo = fmt.Sprintf("add brokers or lower topics.replication (now %d) and topics.min_insync_replicas, since the cluster has %d; then run 'tidegate topics'", want.Replication, brokers)
		}
		return []finding{{gradeFail, "missing", todo}}
	}
	return append(judgeShape(want, t), judgeSettings(want, t)...)
}

func judgeShape(want kafka.TopicSpec, t kafka.TopicInfo) []finding {
	var out []finding
	switch {
	case t.Partitions < want.Partitions:
		out = append(out, finding{gradeFail, fmt.Sprintf("%d partitions instead of %d", t.Partitions, want.Partitions),
			"set topics.partitions to what is there; partitions added under records that wait would move users out of order"})
	case t.Partitions > want.Partitions:
		out = append(out, finding{gradeWarn, fmt.Sprintf("%d partitions, and topics.partitions is %d", t.Partitions, want.Partitions), "set topics.partitions to what is there"})
	}
	if t.Replication < want.Replication {
		out = append(out, finding{gradeFail, fmt.Sprintf("%d copies of each record instead of %d", t.Replication, want.Replication),
			"raise the replication factor with kafka-reassign-partitions, or set topics.replication to what you accept"})
	}
	switch {
	case t.Replication == 1:
		out = append(out, finding{gradeWarn, "one copy of each record", "use replication 3 in production"})
	case t.Replication >= 3 && t.MinInsync == 1:
		out = append(out, finding{gradeFail, fmt.Sprintf("min.insync.replicas is %d", t.MinInsync),
			"set it to 2 with kafka-configs: as it is, what was acknowledged may be on one disk only"})
	case t.MinInsync > int(t.Replication):
		out = append(out, finding{gradeFail, fmt.Sprintf("min.insync.replicas is %d with %d copies", t.MinInsync, t.Replication), "lower it with kafka-configs: as it is, nothing can be written"})
	case t.MinInsync == int(t.Replication):
		out = append(out, finding{gradeWarn, fmt.Sprintf("min.insync.replicas is %d with as many copies", t.MinInsync), "use 2 with 3 copies: as it is, one broker away stops all writing"})
	}
	return out
}

// judgeSettings looks for settings with which records would vanish unread or
// could not be written.
func judgeSettings(want kafka.TopicSpec, t kafka.TopicInfo) []finding {
	var out []finding
	least := max(want.Retention, 24*time.Hour)
	if t.Retention > 0 && t.Retention < least {
		out = append(out, finding{gradeFail, fmt.Sprintf("retention is %s, wanted %s", t.Retention, least),
			"raise retention.ms with kafka-configs: what waits longer than this is deleted unread"})
	}
	if t.RetentionBytes >= 0 && t.Config["retention.bytes"] != "" {
		out = append(out, finding{gradeWarn, fmt.Sprintf("retention.bytes is %d", t.RetentionBytes), "a backlog beyond it is deleted unread; watch the lag"})
	}
	if policy := t.Config["cleanup.policy"]; strings.Contains(policy, "compact") {
		out = append(out, finding{gradeFail, "cleanup.policy is " + policy, "set it to delete with kafka-configs: compaction keeps only the last message of each user"})
	}
	if t.Config["unclean.leader.election.enable"] == "true" {
		out = append(out, finding{gradeFail, "unclean.leader.election.enable is true", "set it to false with kafka-configs: as it is, acknowledged records may be lost when a broker fails"})
	}
	if n, err := strconv.Atoi(t.Config["max.message.bytes"]); err == nil && n < letterBytes {
		out = append(out, finding{gradeFail, fmt.Sprintf("max.message.bytes is %d", n), "raise it to 1048588 with kafka-configs: a long message could not be written"})
	}
	return out
}
