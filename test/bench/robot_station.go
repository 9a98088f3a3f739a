//go:build bench

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// A robot writes down in Redis what it has in hand as long as it cannot know
// whether another one has died with it: for the first 10,000 records of a
// partition that it reads for the first time, or after a death. That is not what
// is measured, so each robot has worked a little and left in order before, and the
// offsets of that window are skipped.
const (
	prelude = 1200
	window  = 10_000
)

// station is the topics of one benchmark, with callbacks to be worked.
type station struct {
	w        *robotWorld
	names    wire.Topics
	copied   string            // the topic of the copies
	programs map[string]string // by target
	n        int               // records of the present fill
	next     int               // number of the next callback
	used     map[string]int64  // records of earlier runs, by topic
	begin    map[string]map[int32]int64
	runs     int
}

// station makes the topics and leads the groups to where a run begins.
func (w *robotWorld) station(ctx context.Context, s robotSettings) (*station, error) {
	st := &station{w: w, names: wire.Topics{Prefix: w.id}, copied: w.id + ".copied", used: map[string]int64{}, begin: map[string]map[int32]int64{},
		programs: map[string]string{targetRobot: filepath.Join(w.dir, "tidegate")}}
	if s.beside != "" {
		st.programs[beside] = s.beside
	}
	for _, c := range robotCells() {
		rules := filepath.Join(w.dir, c.Name+".rules.yaml")
		if err := os.WriteFile(rules, fmt.Appendf(nil, robotRulesYAML, c.rule), 0o600); err != nil {
			return nil, err
		}
		if err := os.WriteFile(st.file(c), fmt.Appendf(nil, robotYAML, w.id, wire.Partitions, w.kafkaAddr, w.redisAddr, ghID, appID, token, rules, w.backend), 0o600); err != nil {
			return nil, err
		}
	}
	if err := command(ctx, w.dir, st.programs[targetRobot], "topics", "--config", st.file(robotCells()[0])); err != nil {
		return nil, err
	}
	if _, err := w.admin.EnsureTopics(ctx, []kafka.TopicSpec{{Name: st.copied, Partitions: wire.Partitions, Replication: 1, Retention: 24 * time.Hour}}); err != nil {
		return nil, err
	}
	if err := st.fill(ctx, prelude); err != nil {
		return nil, err
	}
	for target := range st.programs {
		if _, err := st.robot(ctx, robotCells()[1], target, prelude, nil); err != nil {
			return nil, err
		}
	}
	return st, st.skipWindow(ctx)
}

func (st *station) file(c robotCell) string { return filepath.Join(st.w.dir, c.Name+".yaml") }

// group is the consumer group of a target; the robot puts the account behind it.
func (st *station) group(target string) string {
	if target == targetCopy {
		return st.names.Prefix + ".copy"
	}
	return st.names.Prefix + "." + target + "." + robotAccount
}

// skipWindow fills up the partitions with records that nobody reads.
func (st *station) skipWindow(ctx context.Context) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(st.w.kafkaAddr), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxVersions(kversion.V3_6_0())) // newer ones name topics by id in a commit
	if err != nil {
		return err
	}
	defer c.Close()
	topic := st.names.Callbacks(robotAccount)
	for p := range int32(wire.Partitions) {
		for range window {
			c.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte("skipped")}, nil)
		}
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	ends, err := st.ends(ctx, topic)
	if err != nil {
		return err
	}
	for p := range int32(wire.Partitions) {
		if ends[p] < window {
			return fmt.Errorf("partition %d of %s ends at %d, below %d", p, topic, ends[p], window)
		}
	}
	groups := []string{st.group(targetCopy)}
	for target := range st.programs {
		groups = append(groups, st.group(target))
	}
	for _, g := range groups {
		if err := commit(ctx, c, g, topic, ends); err != nil {
			return err
		}
	}
	return nil
}

// commit sets the offsets of a group that has no members.
func commit(ctx context.Context, c *kgo.Client, group, topic string, offsets map[int32]int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	for p, offset := range offsets {
		part := kmsg.NewOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset = p, offset
		t.Partitions = append(t.Partitions, part)
	}
	req.Topics = append(req.Topics, t)
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("commit offsets of %s: %w", group, err)
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("commit offsets of %s: %w", group, err)
			}
		}
	}
	return nil
}

// fill publishes n callbacks of 10,000 users, as the door does.
func (st *station) fill(ctx context.Context, n int) error {
	st.n = n
	const chunk = 5000
	for from := 0; from < n; from += chunk {
		batch := make([]kafka.Record, 0, chunk)
		for range min(chunk, n-from) {
			r, err := st.callback(st.next)
			if err != nil {
				return err
			}
			st.next++
			batch = append(batch, r)
		}
		if err := st.w.producer.PublishAll(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (st *station) callback(i int) (kafka.Record, error) {
	openid := fmt.Sprintf("oBench%022d", i%users)
	body := message(ghID, openid, uint64(i))
	_, content, _ := strings.Cut(body, "<Content><![CDATA[")
	content, _, _ = strings.Cut(content, "]]>")
	identity := fmt.Sprintf("%s/%s/%d", robotAccount, openid, i)
	hash := idgen.HashOf(identity)
	key, value, headers, err := wire.Encode(&wire.Callback{
		ID: idgen.Derive(idgen.User(appID, openid), hash), IdentityHash: hash.String(), Identity: identity, Account: robotAccount, OpenID: openid, ToUser: ghID,
		MsgType: "text", MsgID: strconv.Itoa(i), CreateTime: time.Now().Unix(), Content: content, ReceivedAt: wire.Millis(time.Now()), Body: []byte(body),
		TraceParent: fmt.Sprintf("00-%032x-%016x-01", i+1, i+1),
	})
	return kafka.Record{Topic: st.names.Callbacks(robotAccount), Key: key, Value: value, Headers: headers}, err
}
