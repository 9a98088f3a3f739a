//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidegate/pkg/kafka"
	"tidegate/pkg/wire"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/herd"
)

// TestBars measures B3.1, B3.3 and B3.5 (flow.md) on real engines with a door and
// robots as processes, and prints a line for each. B3.2 is Figures 7 and 8 of
// paper 003 (`tidegate figures`), B3.4 TestFaultyRobots. Times are measured, so
// the machine must be free: TIDEGATE_TEST_BARS=full asks for them.
func TestBars(t *testing.T) {
	if os.Getenv("TIDEGATE_TEST_BARS") != "full" {
		t.Skip("set TIDEGATE_TEST_BARS=full")
	}
	t.Run("B3.1", barAck)
	t.Run("B3.3", barOrder)
	t.Run("B3.5", barRepeats)
}

// bar prints one line of the table and fails the test if the bar is missed.
func bar(t *testing.T, holds bool, name, promised, format string, args ...any) {
	t.Helper()
	verdict := "holds"
	if !holds {
		verdict = "FAILS"
		t.Fail()
	}
	t.Logf("BAR\t%s\t%s\t%s\t%s", name, promised, fmt.Sprintf(format, args...), verdict)
}

// barWorld is a door and robots without a sender: what is measured lies in Kafka.
func barWorld(t *testing.T, robots int, rules, more string) (*world, *drive.Driver) {
	w := newBareWorld(t, shape{partitions: wire.Partitions, followers: 1, rules: rules, more: more})
	text, err := os.ReadFile(w.file)
	require.NoError(t, err)
	open := strings.Replace(string(text), cappedRobot, "robot: {}", 1)
	require.NotEqual(t, string(text), open)
	require.NoError(t, os.WriteFile(w.file, []byte(open), 0o600))
	w.command("topics", "--config", w.file)
	for i := range robots {
		w.role("robot", i, "")
	}
	door := w.role("proxy", 0, "proxy.http.addr")
	d, err := drive.New(drive.Options{
		Doors:    []drive.Door{{Name: "proxy0", Addr: door}},
		Accounts: []drive.Account{{Name: "card", AppID: appID, GhID: ghID, Token: token, EncodingAESKey: aesKey}},
	})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return w, d
}

func (w *world) text(n int, user int) drive.Act {
	return drive.Act{Token: drive.Mark(w.prefix, n), Account: "card", OpenID: fmt.Sprintf("oBars%023d", user), MsgID: uint64(n + 1), CreateTime: time.Now().Unix()}
}

// barAck: the back end is stopped, in the way that is worst: its connections open
// and nobody answers.
func barAck(t *testing.T) {
	stopped, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = stopped.Close() })
	var held atomic.Int64
	go func() {
		for {
			c, err := stopped.Accept()
			if err != nil {
				return
			}
			held.Add(1)
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	const rules = "version: 1\nfallback: busy\nrules:\n  - name: ask\n    match: {message_type: text}\n    call: {backend: core, path: /ask}\n    reply: [{text: \"{{ .Answer.text }}\"}]\n"
	w, d := barWorld(t, 1, rules, fmt.Sprintf("robot: {backends: [{name: core, base_url: \"http://%s\", timeout: 20s, attempts: 1, rate: 1000, burst: 100, concurrency: 64}]}\n", stopped.Addr()))
	d.Open(t.Context(), drive.Load{Rate: 200, Count: 200, Act: func(i int) drive.Act { return w.text(i, i%500) }}) // connections are open, caches warm
	herd.Wait(t, "the robot to call the stopped back end", 30*time.Second, func() bool { return held.Load() > 0 })
	d.Begin("stopped")
	const rate, count = 200, 4000
	sum := d.Open(t.Context(), drive.Load{Rate: rate, Count: count, Act: func(i int) drive.Act { return w.text(1000+i, i%500) }})
	phases := d.Phases()
	p := phases[len(phases)-1]
	require.EqualValues(t, count, sum.Offered)
	require.Less(t, w.records(w.topics().Replies("card")), int64(count), "the back end did not hold anything up")
	bar(t, sum.Acked == count && p.NotAcked() == 0 && p.Quantile(0.99) <= 50*time.Millisecond, "B3.1", "ack p99 ≤ 50 ms with the back end stopped",
		"p50 %.1f ms, p99 %.1f ms of %d at %d/s, %d refused or late; %d calls hang", ms(p.Quantile(0.5)), ms(p.Quantile(0.99)), sum.Acked, rate, p.NotAcked(), held.Load())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const barRules = "version: 1\nfallback: busy\nrules:\n  - name: menu\n    match: {event: CLICK}\n    reply: [{text: menu}]\n  - name: echo\n    match: {message_type: text}\n    level: vital\n    reply: [{text: \"{{ .Content }}\"}]\n"

// barOrder: 100,000 messages of 1,000 users through the door and two robots, while
// others join and leave in order; what the replies quote rises for each user.
func barOrder(t *testing.T) {
	const users, each, guests = 1000, 100, 3
	w, d := barWorld(t, 2, barRules, "")
	begin := time.Now()
	all := make(chan int64, 1)
	go func() {
		all <- d.Closed(t.Context(), drive.Users{Count: users, Each: each, Act: func(user, _, n int) drive.Act { return w.text(n, user) }})
	}()
	step := int64(users * each / (2*guests + 2))
	for i := range int64(guests) {
		w.acked(d, (2*i+1)*step)
		w.role("robot", 2+int(i), "")
		w.acked(d, (2*i+2)*step)
		w.parts[fmt.Sprintf("robot%d", 2+i)].Stop()
	}
	require.EqualValues(t, users*each, <-all)
	topic := w.topics().Replies("card")
	herd.Wait(t, "all replies", 2*time.Minute, func() bool { return w.records(topic) >= users*each })
	took := time.Since(begin)
	o := w.order(topic)
	rebalances := w.parts["robot0"].Metric("tidegate_kafka_rebalances_total")
	require.GreaterOrEqual(t, rebalances, float64(2*guests), "the guests have not disturbed anybody")
	bar(t, len(o.first) == users*each && o.inversions == 0 && o.doubled == 0, "B3.3", "100,000 messages of 1,000 users: 0 inversions",
		"%d inversions, %d answered twice, %d of %d answered; %d robots came and went, %.0f rebalances, %d records came again with their id and are dropped by it; in %.0f s",
		o.inversions, o.doubled, len(o.first), users*each, guests, rebalances, o.again, took.Seconds())
}

func (w *world) acked(d *drive.Driver, n int64) {
	w.t.Helper()
	herd.Wait(w.t, fmt.Sprint(n, " acks"), time.Minute, func() bool { return d.Acked() >= n })
}

// ordered is what a topic of replies says of the messages that they quote.
type ordered struct {
	first      map[int]*kgo.Record // by message
	inversions int                 // an answer behind that of a later message of its user
	doubled    int                 // messages with a second answer, which the user would see
	again      int                 // records with the id of one before: senders know it and drop them
}

// order reads a topic of replies with another Kafka client.
func (w *world) order(topic string) ordered {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	all := int(w.records(topic))
	c, err := kgo.NewClient(kgo.SeedBrokers(engine(w.t, "KAFKA")), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(w.t, err)
	defer c.Close()
	o, newest := ordered{first: map[int]*kgo.Record{}}, map[string]int{}
	for read := 0; read < all; {
		got := c.PollFetches(ctx)
		require.NoError(w.t, got.Err0())
		got.EachRecord(func(r *kgo.Record) {
			read++
			var n int
			_, err := fmt.Sscanf(drive.FindMark(r.Value), "#"+w.prefix+".%d#", &n)
			require.NoError(w.t, err, "a reply that quotes nothing")
			o.see(w.t, newest, n, r)
		})
	}
	return o
}

// see takes the next record of a partition.
func (o *ordered) see(t *testing.T, newest map[string]int, n int, r *kgo.Record) {
	if f := o.first[n]; f != nil {
		if idOf(f) != idOf(r) {
			o.doubled++
			return
		}
		if o.again++; o.again <= 10 {
			t.Logf("%s/%d:%d of %s comes again at %d of %s", r.Topic, r.Partition, f.Offset, f.Timestamp.Format(time.StampMilli), r.Offset, r.Timestamp.Format(time.StampMilli))
		}
		return
	}
	o.first[n] = r
	user := string(r.Key)
	if n < newest[user] {
		o.inversions++
	}
	newest[user] = max(newest[user], n)
}

func idOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == wire.HeaderID {
			return string(h.Value)
		}
	}
	return ""
}

// barRepeats: ten presses of one button within ten seconds are one that is
// answered and nine that are recorded; 10.1 s after the first it is answered
// again. What WeChat repeats by itself is no press.
func barRepeats(t *testing.T) {
	w, d := barWorld(t, 1, barRules, "")
	press := func(i int) {
		a := w.text(i, 1)
		a.Event, a.EventKey, a.CreateTime = "CLICK", "BALANCE", 1893456000+int64(i)
		require.True(t, d.Send(t.Context(), a, time.Time{}))
	}
	replies, repeats, callbacks := w.topics().Replies("card"), w.topics().Repeats(), w.topics().Callbacks("card")
	press(0)
	first := time.Now() // the mark was set before
	for i := 1; i < 10; i++ {
		<-time.After(time.Until(first.Add(time.Duration(i) * time.Second)))
		press(i)
	}
	within := time.Since(first)
	herd.Wait(t, "a reply", 20*time.Second, func() bool { return w.records(replies) >= 1 })
	answered, recorded := w.records(replies), w.records(repeats)
	<-time.After(time.Until(first.Add(10100 * time.Millisecond)))
	press(10)
	herd.Wait(t, "the second reply", 20*time.Second, func() bool { return w.records(replies) >= 2 })
	again := w.records(replies)
	bar(t, within < 10*time.Second && answered == 1 && recorded == 9 && again == 2, "B3.5", "10 presses in 10 s: 1 answered, 9 recorded; at 10.1 s answered again",
		"in %.1f s %d answered, %d recorded; after 10.1 s %d answered", within.Seconds(), answered, recorded, again)

	before := w.records(callbacks)
	text := w.text(100, 2)
	for n := 1; n <= 3; n++ {
		require.True(t, d.Deliver(t.Context(), text, n, time.Time{}).Acked)
	}
	herd.Wait(t, "its reply", 20*time.Second, func() bool { return w.records(replies) >= 3 })
	more, more2 := w.records(callbacks)-before, w.records(repeats)-recorded
	bar(t, more == 1 && more2 == 0, "B3.5", "3 deliveries with one MsgId: 1 worked, none recorded", "%d worked, %d recorded", more, more2)
}

func (w *world) topics() wire.Topics { return wire.Topics{Prefix: w.prefix} }

// records is how many records a topic has.
func (w *world) records(topic string) (n int64) {
	w.t.Helper()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = []string{engine(w.t, "KAFKA")}
	a, err := kafka.NewAdmin(cfg)
	require.NoError(w.t, err)
	defer func() { _ = a.Close() }()
	rows, err := a.Lag(w.t.Context(), "bars.reads.nothing", []string{topic})
	require.NoError(w.t, err)
	for _, r := range rows {
		n += max(r.End, 0)
	}
	return n
}
