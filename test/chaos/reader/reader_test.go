package reader_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"tidegate/pkg/kafka"
	"tidegate/pkg/kafka/kafkamem"
	"tidegate/pkg/wire"
	"tidegate/test/chaos/check"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/history"
	"tidegate/test/chaos/reader"
)

type queue struct {
	t    *testing.T
	addr string
	prod *kafka.Producer
}

// newQueue is a broker with the topic of an account.
func newQueue(t *testing.T, topic string) *queue {
	t.Helper()
	b, err := kafkamem.Start(kafkamem.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{b.Addr()}
	p, err := kafka.NewProducer(cfg, kafka.ProducerOptions{MaxBlock: 20 * time.Second}, zap.NewNop(), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	q := &queue{t: t, addr: b.Addr(), prod: p}
	q.topic(topic)
	return q
}

func (q *queue) topic(name string) {
	q.t.Helper()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{q.addr}
	a, err := kafka.NewAdmin(cfg)
	require.NoError(q.t, err)
	_, err = a.EnsureTopics(q.t.Context(), []kafka.TopicSpec{{Name: name, Partitions: 4, Replication: 1, MinInsync: 1, Retention: time.Hour}})
	require.NoError(q.t, err)
	require.NoError(q.t, a.Close())
}

func (q *queue) publish(topic, openid, body string) {
	q.t.Helper()
	q.letter(topic, &wire.Callback{ID: "1", Account: "card", OpenID: openid, Body: []byte(body)})
}

func (q *queue) letter(topic string, l wire.Letter) {
	q.t.Helper()
	key, value, headers, err := wire.Encode(l)
	require.NoError(q.t, err)
	_, err = q.prod.Publish(q.t.Context(), kafka.Record{Topic: topic, Key: key, Value: value, Headers: headers})
	require.NoError(q.t, err)
}

// The whole log is in the history, each partition in its order: the checker
// finds no hole in it.
func TestCallbacks(t *testing.T) {
	const topic, n = "t.card.callbacks", 500
	q := newQueue(t, topic)
	for i := range n {
		q.publish(topic, fmt.Sprint("o", i%50), "<xml>"+drive.Mark("run", i)+"</xml>")
	}
	file := filepath.Join(t.TempDir(), "history")
	w, err := history.Create(file, time.Now())
	require.NoError(t, err)
	got, err := reader.Callbacks(t.Context(), q.addr, []string{topic, "t.none.callbacks"}, w)
	require.NoError(t, err)
	require.Equal(t, n, got)
	require.NoError(t, w.Close())
	events, err := history.Read(file)
	require.NoError(t, err)
	tokens := map[string]bool{}
	for _, e := range events {
		require.Equal(t, history.Logged, e.Kind)
		require.Equal(t, e.OpenID, e.Key)
		tokens[e.Token] = true
	}
	require.Len(t, tokens, n)
	found := check.Check(events, check.Options{}).Found
	require.Equal(t, n, found["invented"], "nobody has caused them here")
	require.Zero(t, found["poll skip"]+found["nonmonotonic poll"]+found["broken history"])
}

// What is not of the run, or no letter at all, is an error and no gap.
func TestCallbacksRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		body, want string
	}{
		"no mark":   {"<xml>hello</xml>", "carries no mark"},
		"no letter": {"", "is no letter"},
	} {
		t.Run(name, func(t *testing.T) {
			const topic = "t.card.callbacks"
			q := newQueue(t, topic)
			if c.body != "" {
				q.publish(topic, "o", c.body)
			} else {
				_, err := q.prod.Publish(t.Context(), kafka.Record{Topic: topic, Key: []byte("o"), Value: []byte("hello")})
				require.NoError(t, err)
			}
			w, err := history.Create(filepath.Join(t.TempDir(), "history"), time.Now())
			require.NoError(t, err)
			_, err = reader.Callbacks(t.Context(), q.addr, []string{topic}, w)
			require.ErrorContains(t, err, c.want)
			require.NoError(t, w.Close())
		})
	}
}

// Replies without a mark belong to the messages that their letters name, in the
// order of the topic; one that came again with its id is one.
func TestUnmarked(t *testing.T) {
	const callbacks, replies = "t.card.callbacks", "t.card.replies"
	q := newQueue(t, callbacks)
	q.topic(replies)
	for i := range 3 {
		q.letter(callbacks, &wire.Callback{ID: fmt.Sprint("c", i), Account: "card", OpenID: "o", Body: []byte(drive.Mark("run", i))})
	}
	reply := func(n, of int, text string) {
		q.letter(replies, &wire.Reply{ID: fmt.Sprint("r", n), CallbackID: fmt.Sprint("c", of), Account: "card", OpenID: "o", Content: wire.Content{Type: "text", Text: text}})
	}
	reply(0, 0, "busy")
	reply(1, 1, "done "+drive.Mark("run", 1))
	reply(0, 0, "busy")
	reply(2, 2, "busy")
	u, err := reader.ReadUnmarked(t.Context(), q.addr, []string{callbacks}, []string{replies})
	require.NoError(t, err)
	require.Equal(t, 2, u.Len())
	require.Equal(t, []string{drive.Mark("run", 0), drive.Mark("run", 2), ""}, []string{u.Next("card", "o"), u.Next("card", "o"), u.Next("card", "o")})
	require.Empty(t, u.Next("card", "other"))

	reply(3, 7, "busy")
	_, err = reader.ReadUnmarked(t.Context(), q.addr, []string{callbacks}, []string{replies})
	require.ErrorContains(t, err, "not in the log")
}
