//go:build chaos

package chaos

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat/wechatsim"
	"tidegate/test/chaos/herd"
)

// TestSenders shows what senders promise on Apache Kafka, Redis and PostgreSQL: a
// row for each bar. TIDEGATE_CHAOS=full has the numbers of the guarantees; one of
// them is run by naming it: -run TestSenders/G7.
func TestSenders(t *testing.T) {
	n := senderNumbersOf(t)
	if n.full {
		require.NotEmpty(t, os.Getenv("TIDEGATE_TEST_POSTGRES"), "TIDEGATE_TEST_POSTGRES is not set: run deployments/dev/engines up, then eval \"$(deployments/dev/engines env)\"")
	}
	e := startEngines(t)
	for _, s := range senderScenarios {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, e, n) }) {
			e.mend(t)
		}
	}
}

// sendersShort runs all of them side by side, since most of their time is the
// group's, which waits for the session of the dead.
func sendersShort(t *testing.T, e *engines) {
	n := senderNumbersOf(t)
	for _, s := range senderScenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, e, n)
		})
	}
}

var senderScenarios = []struct {
	name string
	run  func(*testing.T, *engines, senderNumbers)
}{
	{"G7", pushesOnce},
	{"G8", repliesBounded},
	{"G8 calm", repliesCalm},
	{"Crashes", senderCrashes},
}

type senderNumbers struct {
	full           bool
	pushes, every  int // G7: killed at each so-manieth complete and unanswered request
	replies, kills int // G8
	passes         int // of each crash point
}

func senderNumbersOf(t *testing.T) senderNumbers {
	t.Helper()
	switch os.Getenv("TIDEGATE_CHAOS") {
	case "", "short":
		return senderNumbers{pushes: 300, every: 200, replies: 300, kills: 1, passes: 1}
	}
	return senderNumbers{full: true, pushes: 10_000, every: 500, replies: 5_000, kills: 10, passes: 5}
}

// killsOnArrival lets WeChat hold every so-manieth new message when it has done it
// and not answered, and kills the sender at that instant.
func (o *outbound) killsOnArrival(path string, every, kills int, sender *herd.Process) {
	o.t.Helper()
	var seen atomic.Int64
	hit, dead := make(chan struct{}), make(chan struct{})
	hook := func(e wechatsim.Entry) {
		if e.What != path || !e.Visible || seen.Add(1)%int64(every) != 0 {
			return
		}
		select {
		case hit <- struct{}{}:
			<-dead
		case <-o.t.Context().Done():
		}
	}
	o.hook.Store(&hook)
	defer o.hook.Store(nil)
	for k := range kills {
		select {
		case <-hit:
		case <-o.t.Context().Done():
			o.t.Fatalf("kill %d of %d did not come", k+1, kills)
		}
		sender.Kill()
		dead <- struct{}{}
		sender.Restart()
	}
}

// pushesOnce (G7): the sender dies again and again at the instant when WeChat has
// done what it asked for and has not said so.
func pushesOnce(t *testing.T, e *engines, n senderNumbers) {
	o := newOutbound(t, e, e.kafka, n.pushes)
	all, kills := o.letters(n.pushes, false), n.pushes/n.every
	s := o.sender(0, "")
	posted := make(chan error, 1)
	go func() { posted <- o.post(all) }()
	o.killsOnArrival(wechatsim.PathTemplateSend, n.every, kills, s)
	require.NoError(t, <-posted)
	v := o.tally()
	v.demand(o, kills)
	require.LessOrEqual(t, v.raw, n.pushes+kills*inFlight)
	require.GreaterOrEqual(t, v.absorbed, kills, "a kill that no push was repeated after has met nothing")
	row(t, "G7", fmt.Sprintf("%d pushes, killed at each %dth request done and unanswered: each seen once; requests <= %d + K x F", n.pushes, n.every, n.pushes),
		"K %d, F %d, %s: each of %d users saw 1; %s", kills, inFlight, o.database, n.pushes, v)
}

// repliesBounded (G8): the same with messages for which WeChat has no key.
func repliesBounded(t *testing.T, e *engines, n senderNumbers) {
	o := newOutbound(t, e, e.kafka, min(n.replies, 500))
	s := o.sender(0, "")
	all := o.letters(n.replies, true)
	queued := make(chan error, 1)
	go func() { queued <- o.answer(all) }()
	o.killsOnArrival(wechatsim.PathCustomSend, n.replies/(n.kills+1), n.kills, s)
	require.NoError(t, <-queued)
	v := o.tally()
	v.demand(o, n.kills)
	require.GreaterOrEqual(t, v.doubledReplies, n.kills, "each kill has met a reply that had gone")
	row(t, "G8", fmt.Sprintf("%d replies, K %d: doubled <= K x F = %d, each flagged", n.replies, n.kills, n.kills*inFlight), "%s: %s", o.database, v)
}

// repliesCalm (G8): without kills nothing is doubled or flagged.
func repliesCalm(t *testing.T, e *engines, n senderNumbers) {
	o := newOutbound(t, e, e.kafka, min(n.replies, 500))
	o.sender(0, "")
	require.NoError(t, o.answer(o.letters(n.replies, true)))
	v := o.tally()
	v.demand(o, 0)
	require.Equal(t, n.replies, v.raw)
	require.Equal(t, map[string]int{"accepted": n.replies}, v.states)
	row(t, "G8", fmt.Sprintf("%d replies, no kill: doubled 0", n.replies), "%s: %s", o.database, v)
}
