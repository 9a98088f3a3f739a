package robot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/idgen"
	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
)

// A callback that was held, since Redis was away, and turns out to be done already
// gives its place among the held ones up: those are bounded.
func TestAHeldCallbackThatIsDoneIsReleased(t *testing.T) {
	brokers := kafka.DefaultConfig()
	brokers.Brokers = []string{"127.0.0.1:1"}
	r, err := New(DefaultConfig(), []Account{{Name: "card"}}, Deps{Kafka: brokers, Topics: wire.Topics{Prefix: "t"}, Rules: noRules{}})
	require.NoError(t, err)
	hash := idgen.HashOf("one")
	key, value, headers, err := wire.Encode(&wire.Callback{ID: idgen.Derive(idgen.User("wx9f3c7b21d08e4a56", "oUser-1"), hash), IdentityHash: hash.String(), Account: "card", OpenID: "oUser-1", MsgType: "text", Content: "hi"})
	require.NoError(t, err)
	rec := kafka.Record{Topic: r.d.Topics.Callbacks("card"), Partition: 3, Offset: 7, Key: key, Value: value, Headers: headers}
	require.True(t, r.holds.still(placeOf(rec), time.Minute), "it is held")
	r.recent.add(rec, hash.String()) // what it causes is durable
	require.NoError(t, r.handle(t.Context(), r.members["card"], rec))
	require.Empty(t, r.holds.since)
}
