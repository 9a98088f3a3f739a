package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wechat"
)

// A cluster of three cannot be had in every test run; how its topics are
// judged needs none.
func TestDoctorJudgesTopics(t *testing.T) {
	want := kafka.TopicSpec{Name: "t", Partitions: 12, Replication: 3, MinInsync: 2, Retention: 7 * 24 * time.Hour}
	good := kafka.TopicInfo{Name: "t", Exists: true, Partitions: 12, Replication: 3, MinInsync: 2, Retention: want.Retention, RetentionBytes: -1}
	for name, c := range map[string]struct {
		change func(*kafka.TopicInfo)
		grade  grade
		text   string
	}{
		"in order":               {func(*kafka.TopicInfo) {}, gradeOK, "all 1 exist"},
		"kept for ever":          {func(i *kafka.TopicInfo) { i.Retention = -1 }, gradeOK, "all 1 exist"},
		"one disk acknowledges":  {func(i *kafka.TopicInfo) { i.MinInsync = 1 }, gradeFail, "min.insync.replicas is 1"},
		"no broker may be away":  {func(i *kafka.TopicInfo) { i.MinInsync = 3 }, gradeWarn, "one broker away stops all writing"},
		"nothing can be written": {func(i *kafka.TopicInfo) { i.Replication, i.MinInsync = 2, 3 }, gradeFail, "nothing can be written"},
		"fewer copies":           {func(i *kafka.TopicInfo) { i.Replication = 2 }, gradeFail, "2 copies of each record instead of 3"},
		"more partitions":        {func(i *kafka.TopicInfo) { i.Partitions = 24 }, gradeWarn, "24 partitions, and topics.partitions is 12"},
		"compacted":              {set("cleanup.policy", "compact,delete"), gradeFail, "keeps only the last message of each user"},
		"unclean leaders":        {set("unclean.leader.election.enable", "true"), gradeFail, "acknowledged records may be lost"},
		"small records":          {set("max.message.bytes", "65536"), gradeFail, "max.message.bytes is 65536"},
		"bounded by bytes": {func(i *kafka.TopicInfo) {
			i.RetentionBytes = 1 << 30
			set("retention.bytes", "1073741824")(i)
		}, gradeWarn, "retention.bytes is 1073741824"},
	} {
		t.Run(name, func(t *testing.T) {
			info := good
			c.change(&info)
			found := judgeTopics([]kafka.TopicSpec{want}, []kafka.TopicInfo{info}, 3)
			require.True(t, slices.ContainsFunc(found, func(f finding) bool {
				return f.grade == c.grade && strings.Contains(f.String(), c.text)
			}), "%v", found)
		})
	}
}

func set(name, value string) func(*kafka.TopicInfo) {
	return func(i *kafka.TopicInfo) { i.Config = map[string]string{name: value} }
}

func TestDoctorExplainsErrcodes(t *testing.T) {
	for code, want := range map[int]string{
		40001: "FAIL  account card: no token: errcode 40001 – the AppSecret is wrong",
		40013: "FAIL  account card: no token: errcode 40013 – the AppID is wrong",
		40243: "unfreeze it",
		50007: "the account is frozen",
		89503: "must confirm this address",
		45009: "warn  account card: no token now: errcode 45009",
		-1:    "warn  account card: no token now: errcode -1 – WeChat is busy",
		99999: "FAIL  account card: no token: errcode 99999 – look the errcode up",
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			require.Contains(t, tokenRefused("card", &wechat.APIError{API: wechat.APIStableToken, Code: code}).String(), want)
		})
	}
	// Only the address is taken out of WeChat's prose.
	refused := &wechat.APIError{API: wechat.APIStableToken, Code: 40164, Msg: "invalid ip 198.51.100.7 ipv6 ::ffff:198.51.100.7, not in whitelist rid: 65f00d-abc"}
	require.Equal(t, "FAIL  account card: no token: errcode 40164 – put this machine's address as WeChat sees it (198.51.100.7) on the IP whitelist in the account's console",
		tokenRefused("card", refused).String())
}

func TestOldPostgres(t *testing.T) {
	for version, is := range map[string]bool{"PostgreSQL 13.14": true, "PostgreSQL 14.0": false, "PostgreSQL 17.2 (Debian)": false, "SQLite 3.54.1": false} {
		require.Equal(t, is, old(version), version)
	}
}
