//go:build chaos

package chaos

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
	"tidegate/test/chaos/drive"
	"tidegate/test/chaos/reader"
)

// tally is what the journal of the simulated WeChat and the receipts say of the
// messages that were sent.
type tally struct {
	pushes, replies  int // messages that were to be sent
	raw              int // requests that WeChat carried out
	lost             int // messages that nobody has seen
	doubledPushes    int // seen again
	doubledReplies   int
	unflagged        int // of them, without a receipt that says so
	absorbed         int // pushes that came again and that WeChat knew
	strange          int // requests that no message has caused, or for another user (G29)
	otherIDs         int // pushes under another client_msg_id than their own
	without          int // messages without a receipt
	contradictory    int // messages with receipts of several states
	states           map[string]int
	unexpectedStates int
}

// tally waits until senders have read everything and counts.
func (o *outbound) tally() tally {
	o.t.Helper()
	o.worked()
	outcomes, err := reader.Outcomes(o.t.Context(), o.broker.Addr, wire.Topics{Prefix: o.run}.Receipts())
	require.NoError(o.t, err)
	v := tally{states: map[string]int{}}
	visible := o.requests(&v)
	for mark, s := range o.sent {
		if s.reply {
			v.replies++
		} else {
			v.pushes++
		}
		n := visible[mark]
		out := outcomes[s.id]
		switch {
		case n == 0:
			v.lost++
		case !s.reply:
			v.doubledPushes += n - 1
		default:
			v.doubledReplies += n - 1
			if n > 1 && (out == nil || !out.Flagged) {
				v.unflagged++
			}
		}
		if out == nil || !out.OpenIDs[s.openid] {
			v.without++
			continue
		}
		if len(out.States) > 1 {
			v.contradictory++
		}
		for state := range out.States {
			v.states[state]++
			// A reply that two kills met in a row is not sent a third time.
			if state != string(wire.Accepted) && (!s.reply || state != string(wire.Unknown)) {
				v.unexpectedStates++
			}
		}
	}
	for id := range outcomes {
		if !o.known(id) {
			v.strange++
		}
	}
	return v
}

func (o *outbound) known(id string) bool {
	for _, s := range o.sent {
		if s.id == id {
			return true
		}
	}
	return false
}

// requests reads the journal and gives how often each message was seen.
func (o *outbound) requests(v *tally) map[string]int {
	o.t.Helper()
	visible, again := map[string]int{}, map[string]bool{}
	_, dropped := o.sim.Journal().Len()
	require.Zero(o.t, dropped, "the journal of the simulator is too short")
	for next := uint64(0); ; {
		entries, last := o.sim.Journal().Read(next, 1000, func(e *wechatsim.Entry) bool {
			return e.Kind == wechatsim.KindArrival && (e.What == wechatsim.PathTemplateSend || e.What == wechatsim.PathCustomSend)
		})
		for _, e := range entries {
			s := o.sent[drive.FindMark([]byte(e.Text))]
			if s == nil || s.openid != e.OpenID || s.reply != (e.What == wechatsim.PathCustomSend) {
				v.strange++
				continue
			}
			if !s.reply && e.ClientMsgID != s.id {
				v.otherIDs++
			}
			if e.Applied {
				v.raw++
			}
			if e.Visible {
				visible[s.mark]++
			} else if again[s.mark] {
				v.absorbed++
			}
			again[s.mark] = true
		}
		if last == next || len(entries) == 0 {
			return visible
		}
		next = last
	}
}

// demand holds what is true after every run: k kills of senders, each with at
// most f requests under way.
func (v tally) demand(o *outbound, k int) {
	t := o.t
	t.Helper()
	require.Zero(t, v.lost, "messages that nobody has seen: %+v", v)
	require.Zero(t, v.doubledPushes, "pushes seen twice: %+v", v)
	require.Zero(t, v.otherIDs, "pushes under an id that is not theirs: %+v", v)
	require.Zero(t, v.strange, "G29: requests or receipts without a cause: %+v", v)
	require.LessOrEqual(t, v.doubledReplies, k*inFlight, "G8: more doubled than was under way: %+v", v)
	require.Zero(t, v.unflagged, "doubled replies without a flag: %+v", v)
	require.LessOrEqual(t, v.raw, v.pushes+v.replies+2*k*inFlight, "more requests than the kills explain: %+v", v)
	require.Zero(t, v.without, "messages without a receipt: %+v", v)
	require.Zero(t, v.contradictory, "messages with two endings: %+v", v)
	require.Zero(t, v.unexpectedStates, "endings: %+v", v.states)
}

func (v tally) String() string {
	return fmt.Sprintf("%d pushes, %d replies, %d requests; lost 0, pushes doubled %d (absorbed by WeChat %d), replies doubled %d (unflagged %d), G29 without a cause %d",
		v.pushes, v.replies, v.raw, v.doubledPushes, v.absorbed, v.doubledReplies, v.unflagged, v.strange)
}
