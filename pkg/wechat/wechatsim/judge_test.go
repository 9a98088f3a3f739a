package wechatsim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// history writes journal entries by hand, one tick per entry.
type history struct {
	entries []Entry
	now     int64
	ids     uint64
}

func (h *history) add(e Entry) Entry {
	h.now += 1000
	e.Seq, e.At = uint64(len(h.entries)+1), h.now
	h.entries = append(h.entries, e)
	return e
}

func mark(n byte) string { return markPrefix + "00000" + "0000000" + string(n) }

// says is a user's message with mark n that is acked at the first try.
func (h *history) says(user string, n byte) uint64 {
	id := h.begins(user, n, 0)
	h.acked(id, user, JudgedSuccess)
	h.settled(id, user, true)
	return id
}

func (h *history) begins(user string, n byte, repeatOf uint64) uint64 {
	h.ids++
	h.add(Entry{Kind: KindStimulus, Account: "A", OpenID: user, What: "text", Stimulus: h.ids, Tokens: []string{mark(n)}, Wants: 1, RepeatOf: repeatOf})
	return h.ids
}

func (h *history) acked(id uint64, user, judged string) {
	h.add(Entry{Kind: KindDelivery, Account: "A", OpenID: user, Stimulus: id, Attempt: 1, Sent: h.now, Answered: h.now + 500, Judged: judged})
}

func (h *history) settled(id uint64, user string, acked bool) {
	h.add(Entry{Kind: KindSettled, Account: "A", OpenID: user, Stimulus: id, Acked: acked})
}

func (h *history) reply(account, user string, n byte) {
	h.add(Entry{Kind: KindArrival, Account: account, OpenID: user, What: PathCustomSend, Tokens: []string{mark(n)}, Applied: true, Visible: true})
}

func (h *history) push(user, clientMsgID string, visible bool, tokens ...string) {
	h.add(Entry{Kind: KindArrival, Account: "A", OpenID: user, What: PathTemplateSend, ClientMsgID: clientMsgID, Tokens: tokens, Applied: true, Visible: visible})
}

func (h *history) expect(user string, n byte) {
	h.add(Entry{Kind: KindExpect, Account: "A", OpenID: user, Tokens: []string{mark(n)}})
}

func (h *history) verdict(grace time.Duration) Verdict {
	j := NewJudge(1000)
	for _, e := range h.entries {
		j.Add(e)
	}
	return j.Verdict(h.now, grace)
}

func TestVerdictFindsEachAnomaly(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(h *history)
		anomaly string
		check   func(t *testing.T, v Verdict)
	}{
		"right": {
			func(h *history) { h.says("u", '1'); h.reply("A", "u", '1'); h.says("u", '2'); h.reply("A", "u", '2') }, "",
			func(t *testing.T, v Verdict) {
				require.EqualValues(t, 2, v.Replies.Expected)
				require.EqualValues(t, 2, v.Replies.Answered)
			},
		},
		"one lost": {
			func(h *history) { h.says("u", '1'); h.says("u", '2'); h.reply("A", "u", '2') }, "lost",
			func(t *testing.T, v Verdict) { require.EqualValues(t, 1, v.Replies.Lost) },
		},
		"one doubled": {
			func(h *history) { h.says("u", '1'); h.reply("A", "u", '1'); h.reply("A", "u", '1') }, "doubled",
			func(t *testing.T, v Verdict) {
				require.EqualValues(t, 1, v.Replies.Doubled)
				require.EqualValues(t, 1, v.Replies.DoubledRaw)
			},
		},
		"two swapped": {
			func(h *history) { h.says("u", '1'); h.says("u", '2'); h.reply("A", "u", '2'); h.reply("A", "u", '1') }, "out_of_order",
			func(t *testing.T, v Verdict) { require.EqualValues(t, 1, v.Replies.OutOfOrder) },
		},
		"one invented": {
			func(h *history) { h.says("u", '1'); h.reply("A", "u", '1'); h.reply("A", "u", '9') }, "invented",
			func(t *testing.T, v Verdict) { require.EqualValues(t, 1, v.Replies.Invented) },
		},
		"one to another user": {
			func(h *history) { h.says("u", '1'); h.reply("A", "u", '1'); h.reply("A", "other", '1') }, "misdirected",
			func(t *testing.T, v Verdict) { require.EqualValues(t, 1, v.Replies.Misdirected) },
		},
		"one through another account": {
			func(h *history) { h.says("u", '1'); h.reply("A", "u", '1'); h.reply("B", "u", '1') }, "cross_account",
			func(t *testing.T, v Verdict) { require.EqualValues(t, 1, v.Replies.CrossAccount) },
		},
		"one push doubled": {
			func(h *history) { h.push("u", "c1", true); h.push("u", "c1", true) }, "push_doubled",
			func(t *testing.T, v Verdict) { require.EqualValues(t, 1, v.Pushes.Doubled) },
		},
		"one announced push under two ids": {
			func(h *history) {
				h.expect("u", '7')
				h.push("u", "c1", true, mark('7'))
				h.push("u", "c2", true, mark('7'))
			}, "push_doubled",
			func(t *testing.T, v Verdict) { require.EqualValues(t, 1, v.Pushes.Doubled) },
		},
		"one announced push lost": {
			func(h *history) { h.expect("u", '7'); h.push("u", "c1", true) }, "push_lost",
			func(t *testing.T, v Verdict) { require.EqualValues(t, 1, v.Pushes.Lost) },
		},
		"one announced push to another user": {
			func(h *history) {
				h.expect("u", '7')
				h.push("u", "c1", true, mark('7'))
				h.push("x", "c2", true, mark('7'))
			}, "push_misdirected",
			func(t *testing.T, v Verdict) { require.EqualValues(t, 1, v.Pushes.Misdirected) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			c.happens(h)
			v := h.verdict(0)
			require.True(t, v.Complete)
			c.check(t, v)
			require.Equal(t, c.anomaly == "", v.OK)
			if c.anomaly == "" {
				require.Empty(t, v.Anomalies)
				return
			}
			require.Len(t, v.Anomalies, 1)
			require.Equal(t, c.anomaly, v.Anomalies[0].Kind)
		})
	}
}

func TestUnackedCallbackNeedsNoReplyButMayHaveOne(t *testing.T) {
	h := &history{}
	id := h.begins("u", '1', 0)
	h.acked(id, "u", JudgedStatus)
	h.settled(id, "u", false)
	v := h.verdict(0)
	require.True(t, v.OK)
	require.EqualValues(t, 1, v.Callbacks.Refused)
	h.reply("A", "u", '1')
	require.True(t, h.verdict(0).OK)
}

func TestReplyBeforeTheAckIsKnownStillAnswers(t *testing.T) {
	h := &history{}
	id := h.begins("u", '1', 0)
	h.reply("A", "u", '1')
	h.acked(id, "u", JudgedSuccess)
	h.settled(id, "u", true)
	v := h.verdict(0)
	require.True(t, v.OK)
	require.EqualValues(t, 1, v.Replies.Answered)
}

func TestMessagesUnderWayTogetherHaveNoOrder(t *testing.T) {
	h := &history{}
	a := h.begins("u", '1', 0)
	b := h.begins("u", '2', 0)
	h.acked(a, "u", JudgedSuccess)
	h.acked(b, "u", JudgedSuccess)
	h.reply("A", "u", '2')
	h.reply("A", "u", '1')
	require.Zero(t, h.verdict(0).Replies.OutOfOrder)
}

func TestOrderIsSeenAlthoughALaterAckIsWrittenLate(t *testing.T) {
	h := &history{}
	h.says("u", '1')
	b := h.begins("u", '2', 0)
	h.reply("A", "u", '2') // before the delivery entry of 2 is written
	h.acked(b, "u", JudgedSuccess)
	h.reply("A", "u", '1')
	require.EqualValues(t, 1, h.verdict(0).Replies.OutOfOrder)
}

func TestUserRepeatNeedsNoReplyOfItsOwn(t *testing.T) {
	h := &history{}
	first := h.says("u", '1')
	again := h.begins("u", '1', first)
	h.acked(again, "u", JudgedSuccess)
	h.settled(again, "u", true)
	h.reply("A", "u", '1')
	v := h.verdict(0)
	require.True(t, v.OK)
	require.EqualValues(t, 1, v.Callbacks.UserRepeats)
	require.EqualValues(t, 1, v.Replies.Expected)

	h.reply("A", "u", '1')
	v = h.verdict(0)
	require.True(t, v.OK)
	require.EqualValues(t, 1, v.Replies.ToRepeats)

	h.reply("A", "u", '1')
	require.EqualValues(t, 1, h.verdict(0).Replies.Doubled)
}

func TestPassiveNoticeAnswersUntilTheReplyComes(t *testing.T) {
	h := &history{}
	id := h.begins("u", '1', 0)
	h.acked(id, "u", JudgedPassive)
	v := h.verdict(0)
	require.EqualValues(t, 1, v.Replies.Notices)
	require.Zero(t, v.Replies.Lost)
	h.reply("A", "u", '1')
	v = h.verdict(0)
	require.True(t, v.OK)
	require.EqualValues(t, 1, v.Replies.Answered)
}

func TestPassiveReplyAndLaterReplyAreDoubled(t *testing.T) {
	h := &history{}
	id := h.begins("u", '1', 0)
	h.add(Entry{Kind: KindDelivery, Account: "A", OpenID: "u", Stimulus: id, Judged: JudgedPassive, Sent: h.now, Answered: h.now,
		Tokens: []string{mark('1')}, Applied: true, Visible: true})
	h.reply("A", "u", '1')
	require.EqualValues(t, 1, h.verdict(0).Replies.Doubled)
}

func TestGraceSeparatesPendingFromLost(t *testing.T) {
	h := &history{}
	h.says("u", '1')
	h.expect("u", '7')
	v := h.verdict(time.Second)
	require.EqualValues(t, 1, v.Replies.Pending)
	require.EqualValues(t, 1, v.Pushes.Pending)
	require.Zero(t, v.Replies.Lost+v.Pushes.Lost)
	h.now += int64(time.Second)
	v = h.verdict(time.Second)
	require.EqualValues(t, 1, v.Replies.Lost)
	require.EqualValues(t, 1, v.Pushes.Lost)
}

func TestReplyRefusedForGoodIsNotLost(t *testing.T) {
	h := &history{}
	h.says("u", '1')
	h.add(Entry{Kind: KindArrival, Account: "A", OpenID: "u", What: PathCustomSend, Tokens: []string{mark('1')}, Errcode: errOutOfWindow})
	v := h.verdict(0)
	require.EqualValues(t, 1, v.Replies.Refused)
	require.Zero(t, v.Replies.Lost)
	h.reply("A", "u", '1')
	v = h.verdict(0)
	require.Zero(t, v.Replies.Refused)
	require.EqualValues(t, 1, v.Replies.Answered)
}

func TestReplyRefusedForNowStaysLost(t *testing.T) {
	h := &history{}
	h.says("u", '1')
	h.add(Entry{Kind: KindArrival, Account: "A", OpenID: "u", What: PathCustomSend, Tokens: []string{mark('1')}, Errcode: -1})
	require.EqualValues(t, 1, h.verdict(0).Replies.Lost)
}

func TestJudgeBeyondItsMemoryIsIncomplete(t *testing.T) {
	j := NewJudge(1)
	h := &history{}
	h.says("u", '1')
	h.reply("A", "u", '1')
	h.says("u", '2')
	for _, e := range h.entries {
		j.Add(e)
	}
	v := j.Verdict(h.now, 0)
	require.False(t, v.Complete)
	require.False(t, v.OK)
}

func TestMarksSurviveAnyText(t *testing.T) {
	m := marker{"abc12"}.mark(77)
	require.Len(t, m, markLen)
	require.Equal(t, []string{m}, findMarks("tgq tgqX "+m+"tgq"+" "+m))
	require.Empty(t, findMarks(m[:markLen-1]))
}
