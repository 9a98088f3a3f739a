package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tidegate/pkg/wechat/wechatsim"
	"tidegate/pkg/wire"
)

// summary is the conservation sum of a run: what was promised against what
// happened. Everything but the receipts comes from the simulator's journal;
// ReceiptsJoined and DoubledFlagged come from the store.
type summary struct {
	OK       bool    `json:"ok"`
	Seconds  float64 `json:"seconds"`
	Complete bool    `json:"complete"` // the judge could follow everything

	Accepted int64 `json:"accepted"` // callbacks that were acknowledged
	Refused  int64 `json:"refused"`  // callbacks that all tries did not bring in
	Replied  int64 `json:"replied"`
	// RepliesRefused are those that WeChat did not want: it allows a follower's
	// message five replies. They have ended, in their rows as rejected.
	RepliesRefused int64 `json:"replies_refused"`
	Repeats        int64 `json:"repeats"` // hasty second presses, acknowledged and not worked
	Deliveries     int64 `json:"deliveries"`

	Lost       int64 `json:"lost"` // acknowledged or accepted, and without effect
	Doubled    int64 `json:"doubled"`
	OutOfOrder int64 `json:"out_of_order"`
	Unexpected int64 `json:"unexpected"` // without a cause, or to somebody else
	// DoubledFlagged were seen twice after a crash and are marked so in their
	// rows, as promised; they are not in Doubled.
	DoubledFlagged int64 `json:"doubled_flagged"`

	AckP50 float64 `json:"ack_p50_ms"`
	AckP99 float64 `json:"ack_p99_ms"`
	AckMax float64 `json:"ack_max_ms"`

	PushesAccepted int64 `json:"pushes_accepted"`
	PushesSent     int64 `json:"pushes_sent"`
	ReceiptsJoined int64 `json:"receipts_joined"`

	Break     string              `json:"break,omitempty"` // the injected fault
	Broken    int64               `json:"broken,omitempty"`
	Anomalies []wechatsim.Anomaly `json:"anomalies,omitempty"`
}

// graceAtEnd is zero: the run has waited long enough, what is still missing
// is lost.
const graceAtEnd = 0

func (w *devWorld) summarize(ctx context.Context, o DevOptions) (summary, error) {
	v := w.sim.Verdict(graceAtEnd)
	states, err := w.states(ctx)
	if err != nil {
		return summary{}, err
	}
	doubled := v.Replies.Doubled
	flagged := min(doubled, states.possibleDuplicates)
	s := summary{
		Seconds: time.Since(w.began).Round(time.Millisecond).Seconds(), Complete: v.Complete,
		Accepted: v.Callbacks.Acked, Refused: v.Callbacks.Refused, Replied: v.Replies.Answered, RepliesRefused: v.Replies.Refused,
		Repeats: v.Callbacks.UserRepeats, Deliveries: v.Callbacks.Deliveries,
		Lost:       v.Replies.Lost + v.Replies.Pending + v.Pushes.Lost + v.Pushes.Pending,
		Doubled:    doubled - flagged + v.Pushes.Doubled,
		OutOfOrder: v.Replies.OutOfOrder, Unexpected: v.Replies.Unexpected + v.Pushes.Misdirected, DoubledFlagged: flagged,
		AckP50: v.Callbacks.AckP50Ms, AckP99: v.Callbacks.AckP99Ms, AckMax: v.Callbacks.AckMaxMs,
		PushesAccepted: w.pushes.Load(), PushesSent: v.Pushes.Visible, ReceiptsJoined: states.joined(),
		Break: o.Break, Anomalies: v.Anomalies[:min(len(v.Anomalies), 10)],
	}
	if w.breaker != nil {
		s.Broken = w.breaker.hits.Load()
	}
	// A fault that was asked for and did not happen proves nothing either.
	s.OK = s.Complete && (o.Break == "" || s.Broken > 0) && s.Lost == 0 && s.Doubled == 0 && s.OutOfOrder == 0 && s.Unexpected == 0
	return s, nil
}

// joined counts pushes whose row holds WeChat's own word.
func (s stateCounts) joined() int64 {
	return s.pushes[wire.Delivered] + s.pushes[wire.RefusedByUser] + s.pushes[wire.FailedByPlatform]
}

func (s summary) print(o DevOptions) error {
	if o.JSON {
		e := json.NewEncoder(o.Out)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	verdict := "nothing lost, nothing doubled, nothing out of order"
	if !s.OK {
		verdict = "NOT RIGHT: see the numbers above"
		if s.Break != "" && s.Broken == 0 {
			verdict = fmt.Sprintf("the fault %q did not happen: it hits reply number %d, so let the run be longer or faster", s.Break, breakNth)
		}
	}
	_, err := fmt.Fprintf(o.Out, `
what was promised, and what happened (from the simulator's journal and the store)
  callbacks   %7d acknowledged    ack p50 %.1f ms, p99 %.1f ms, worst %.1f ms
              %7d refused at all tries
              %7d hasty repeats   acknowledged, not worked
  replies     %7d received by followers, %d refused by WeChat (five to a message, 48 h)
  pushes      %7d accepted        %d sent, %d with WeChat's receipt joined
  lost        %7d
  doubled     %7d                 (%d more after a crash, flagged in their rows)
  disordered  %7d
  unexpected  %7d
  %s
`, s.Accepted, s.AckP50, s.AckP99, s.AckMax, s.Refused, s.Repeats, s.Replied, s.RepliesRefused, s.PushesAccepted, s.PushesSent, s.ReceiptsJoined,
		s.Lost, s.Doubled, s.DoubledFlagged, s.OutOfOrder, s.Unexpected, verdict)
	if err == nil && !s.OK {
		for _, a := range s.Anomalies {
			fmt.Fprintf(o.Out, "  %s: follower %s, mark %q, journal entry %d: %s\n", a.Kind, a.OpenID, a.Token, a.Seq, a.Detail)
		}
	}
	return err
}
