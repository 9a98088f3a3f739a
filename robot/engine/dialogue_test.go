package engine_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

const balanceRules = `
  - name: balance
    match:
      text: {regexp: '^(?:余额|balance)\s*(?P<digits>\d*)$', ignore_case: true}
    dialogue:
      timeout: 5m
      timed_out: {text: "too late"}
      steps:
        - ask: {text: "last four digits?"}
          store: digits
          regexp: '(\d{4})(?: please)?'
          error: {text: "four digits, {{ get .Vars \"kind\" \"card\" }}"}
          tries: 3
          gave_up: {text: "never mind"}
        - ask: {menu: {head: "kind?", items: [{id: credit, text: Credit}, {id: debit, text: Debit}]}}
          store: kind
          choices: {credit: [信用卡, c], debit: [借记卡, d]}
        - ask: {text: "month?"}
          regexp: '(?P<year>\d{4})-(?P<month>\d{2})'
          when: {kind: credit}
    call:
      backend: core
      path: /balance/{{ .Vars.digits }}
      body: {kind: "{{ .Vars.kind }}", month: "{{ get .Vars \"month\" \"-\" }}"}
    reply: {text: "{{ .Vars.digits }}: {{ .Answer.amount }}"}
  - name: other
    match: {text: {equals: other}}
    reply: {text: "other"}
  - name: press
    match: {event: CLICK}
    reply: {text: "pressed"}
  - name: default
    match: {default: true}
    reply: {text: "echo {{ .Content }}"}
`

var began = time.Date(2026, 10, 10, 9, 30, 0, 0, time.FixedZone("", 8*3600))

// talk is a follower's conversation: state goes in, decision comes out.
type talk struct {
	t     *testing.T
	rules *engine.Rules
	state *engine.State
	at    time.Time
	last  engine.Decision
}

func (k *talk) say(c *wire.Callback) string {
	k.t.Helper()
	c.ReceivedAt = k.at.UnixMilli()
	d, err := k.rules.DecideIn(c, engine.Situation{State: k.state})
	require.NoError(k.t, err)
	again, err := k.rules.DecideIn(c, engine.Situation{State: k.state})
	require.NoError(k.t, err)
	require.Equal(k.t, d, again, "worked twice it decides the same")
	if d.Moves {
		k.state = d.State
	}
	k.last = d
	k.at = k.at.Add(time.Second)
	switch {
	case d.Call != nil:
		return "call " + d.Call.Path + " " + string(d.Call.Body)
	case len(d.Replies) == 0:
		return ""
	case d.Replies[0].Menu != nil:
		return d.Replies[0].Menu.Head
	}
	return d.Replies[0].Text
}

func (k *talk) text(s string) string { k.t.Helper(); return k.say(text(s)) }

func conversation(t *testing.T, body string) *talk {
	return &talk{t: t, rules: rules(t, body), at: began}
}

func TestADialogueAsksStoresAndCalls(t *testing.T) {
	k := conversation(t, balanceRules)
	require.Equal(t, "last four digits?", k.text("余额"))
	require.Equal(t, "four digits, card", k.text("12"))
	require.Equal(t, "four digits, card", k.text("12345"), "the whole answer must fit")
	require.Equal(t, "kind?", k.text(" １２３４ please "), "wide digits count, the group is what is kept")
	require.Equal(t, "1234", k.state.Vars["digits"])
	require.Equal(t, "kind?", k.text("gold"), "without an error text the question is asked again")
	require.Equal(t, "month?", k.text("C"))
	require.Equal(t, `call /balance/1234 {"kind":"credit","month":"09"}`, k.text("2026-09"))
	require.Nil(t, k.state)
	require.True(t, k.last.Moves)
	require.NoError(t, k.last.Render(map[string]any{"amount": int64(7)}))
	require.Equal(t, "1234: 7", k.last.Replies[0].Text)
	require.Equal(t, "echo 1234", k.text("1234"), "afterwards it is any message")
}

func TestAConditionSkipsAQuestionAndAMenuLineAnswers(t *testing.T) {
	k := conversation(t, balanceRules)
	k.text("balance")
	k.text("1234")
	pressed := text("Debit")
	pressed.Fields = map[string]string{"bizmsgmenuid": "debit"}
	require.Equal(t, `call /balance/1234 {"kind":"debit","month":"-"}`, k.say(pressed))
}

func TestWhatTheFirstMessageSaysIsNotAsked(t *testing.T) {
	k := conversation(t, balanceRules)
	require.Equal(t, "kind?", k.text("balance 1234"))
	k = conversation(t, balanceRules)
	require.Equal(t, "last four digits?", k.text("balance 12"), "unless it is no good answer")
}

func TestADialogueEnds(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(k *talk) string
		want string
	}{
		"cancelled":                            {func(k *talk) string { return k.text("取消") }, "已取消。"},
		"cancelled in capitals":                {func(k *talk) string { return k.text("Cancel") }, "已取消。"},
		"tries are used up":                    {func(k *talk) string { k.text("x"); k.text("x"); return k.text("x") }, "never mind"},
		"too late":                             {func(k *talk) string { k.at = k.at.Add(5*time.Minute + time.Second); return k.text("1234") }, "too late"},
		"too late, but a rule knows the words": {func(k *talk) string { k.at = k.at.Add(time.Hour); return k.text("other") }, "other"},
	} {
		k := conversation(t, balanceRules)
		k.text("balance")
		require.NotNil(t, k.state, name)
		require.Equal(t, c.want, c.do(k), name)
		require.Nil(t, k.state, name)
		require.Equal(t, "echo 1234", k.text("1234"), name)
	}
}

func TestEventsLeaveADialogueAlone(t *testing.T) {
	k := conversation(t, balanceRules)
	k.text("balance")
	require.Equal(t, "pressed", k.say(event("CLICK", "A")))
	require.False(t, k.last.Moves)
	require.Equal(t, "four digits, card", k.say(&wire.Callback{Account: "demo", OpenID: "oUser-1", MsgType: "image"}), "a picture is a wrong answer")
	require.Equal(t, "kind?", k.text("1234"))
	require.False(t, k.rules.Dialogues(event("CLICK", "A")), "nobody needs to ask where the follower stands")
	require.True(t, k.rules.Dialogues(text("x")))
}

// A reload in the middle: texts may change, questions may not.
func TestChangedQuestionsEndADialogue(t *testing.T) {
	k := conversation(t, balanceRules)
	k.text("balance")
	k.rules = rules(t, strings.Replace(balanceRules, "four digits, ", "FOUR ", 1))
	require.Equal(t, "FOUR card", k.text("x"))
	k.rules = rules(t, strings.Replace(balanceRules, `'(\d{4})(?: please)?'`, `'\d{6}'`, 1))
	require.Equal(t, "echo 123456", k.text("123456"))
	require.Nil(t, k.state)

	k = conversation(t, balanceRules)
	k.text("balance")
	k.rules = rules(t, "  - {name: x, match: {default: true}, silence: true}\n")
	require.Empty(t, k.text("1234"))
	require.Nil(t, k.state)
}

func TestTheDeskEndsADialogueAndOtherInstantAnswersDoNot(t *testing.T) {
	r := rules(t, `
  - {name: desk, match: {text: {contains: 人工}}, answer: at_once, hand_over: true}
  - {name: hours, match: {text: {equals: hours}}, answer: at_once, reply: {text: nine to five}}
`+balanceRules)
	open := engine.Situation{State: &engine.State{Rule: "balance"}}
	for answered, moves := range map[string]bool{"desk": true, "hours": false, "gone": false} {
		c := text("人工")
		c.Answered = answered
		require.Equal(t, moves, r.Answered(c, open).Moves, answered)
		require.False(t, r.Answered(c, engine.Situation{}).Moves)
	}
}

func TestAnErrorMovesNothing(t *testing.T) {
	r := rules(t, `
  - name: a
    match: {text: {equals: a}}
    fallback: sorry
    dialogue:
      steps:
        - {ask: {text: "{{ .Fields.x }}"}, store: gone}
    reply: {text: done}
`)
	d, err := r.DecideIn(text("a"), engine.Situation{})
	require.Error(t, err)
	require.False(t, d.Moves)
	require.Empty(t, d.Replies)
	require.Equal(t, "sorry", d.Fallback)
}

// Whatever a follower says in whatever order: a decision is made, the same one
// each time, its state has known variables only and goes through JSON unharmed.
func TestAnyConversation(t *testing.T) {
	r := rules(t, balanceRules)
	known := []string{"digits", "kind", "month", "year"}
	rapid.Check(t, func(t *rapid.T) {
		var state *engine.State
		at := began
		for range rapid.IntRange(1, 12).Draw(t, "messages") {
			c := text(rapid.SampledFrom([]string{"balance", "balance 1234", "1234", "c", "d", "2026-09", "取消", "other", "", "x", strings.Repeat("9", 600)}).Draw(t, "text"))
			if rapid.IntRange(0, 5).Draw(t, "event") == 0 {
				c = event("CLICK", "A")
			}
			at = at.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second)
			c.ReceivedAt = at.UnixMilli()
			d, err := r.DecideIn(c, engine.Situation{State: state})
			require.NoError(t, err)
			require.True(t, len(d.Replies) > 0 || d.Call != nil)
			if !d.Moves {
				require.Nil(t, d.State)
				continue
			}
			raw, err := json.Marshal(d.State)
			require.NoError(t, err)
			state = nil
			require.NoError(t, json.Unmarshal(raw, &state))
			again, err := json.Marshal(state)
			require.NoError(t, err)
			require.JSONEq(t, string(raw), string(again))
			if state != nil {
				require.Subset(t, known, slices.Collect(maps.Keys(state.Vars)))
				require.Less(t, state.Tries, 3)
			}
		}
	})
}
