package engine_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
	"tidegate/robot/engine"
)

const samplePath = "../../deployments/config/rules.sample.yaml"

func sample(t *testing.T) *engine.Rules {
	t.Helper()
	r, err := engine.Load(samplePath, engine.Known{Accounts: []string{"demo"}, Backends: []string{"core"}, Engines: []string{"assistant"}})
	require.NoError(t, err)
	return r
}

func text(content string) *wire.Callback {
	return &wire.Callback{ID: "25770000000000000000001", Account: "demo", OpenID: "oUser-1", MsgType: "text", Content: content, CreateTime: 1893456001}
}

// inHours lets the callback reach the door on a Saturday that is worked.
func inHours(c *wire.Callback) *wire.Callback {
	c.ReceivedAt = began.UnixMilli()
	return c
}

func event(name, key string) *wire.Callback {
	return &wire.Callback{ID: "25770000000000000000002", Account: "demo", OpenID: "oUser-1", MsgType: "event", Event: name, EventKey: key, CreateTime: 1893456001}
}

func rules(t *testing.T, body string) *engine.Rules {
	t.Helper()
	r, err := engine.Parse("rules.yaml", []byte("version: 1\nfallback: busy\nrules:\n"+body), engine.Known{})
	require.NoError(t, err)
	return r
}

func TestSampleChoosesTheRightRule(t *testing.T) {
	r := sample(t)
	menuPressed := text("查询账单 / My bill")
	menuPressed.Fields = map[string]string{"bizmsgmenuid": "bill"}
	said := &wire.Callback{Account: "demo", OpenID: "oUser-1", MsgType: "voice", Fields: map[string]string{"Recognition": "积分"}}
	for _, c := range []struct {
		name string
		c    *wire.Callback
		rule string
	}{
		{"equals folds case and trims", text("  Opening HOURS "), "opening-hours"},
		{"contains, when nobody is there", text("我要人工服务"), "human-desk-closed"},
		{"contains, in the hours", inHours(text("我要人工服务")), "human-desk"},
		{"the first question of a dialogue", text("余额"), "balance"},
		{"an external engine", text("Assistant, help"), "assistant"},
		{"scene of a new follower loses one prefix", event("subscribe", "qrscene_shop_0042"), "shop-scene"},
		{"scene of an old follower", event("SCAN", "shop_7"), "shop-scene"},
		{"a scene of another kind", event("subscribe", "qrscene_other"), "welcome"},
		{"double prefix is part of the scene", event("subscribe", "qrscene_qrscene_shop_1"), "welcome"},
		{"plain subscribe", event("subscribe", ""), "welcome"},
		{"menu key", event("CLICK", "BILL"), "bill"},
		{"menu key of another button", event("CLICK", "BILLS"), "default"},
		{"menu key does not match VIEW", event("VIEW", "BILL"), "quiet"},
		{"regexp without group", text("积分"), "points"},
		{"regexp with group", text("POINTS 2026"), "points"},
		{"recognised speech counts as text", said, "points"},
		{"menu item", menuPressed, "bill-line"},
		{"message type", &wire.Callback{Account: "demo", MsgType: "image"}, "picture"},
		{"unsubscribe", event("unsubscribe", ""), "goodbye"},
		{"default", text("hello"), "default"},
		{"default takes a message type of the future", &wire.Callback{Account: "demo", MsgType: "hologram"}, "default"},
		{"default leaves events that cannot be answered", event("user_info_modified", ""), ""},
	} {
		d, err := r.Decide(c.c)
		require.NoError(t, err, c.name)
		require.Equal(t, c.rule, d.Rule, c.name)
		require.NotEmpty(t, d.Fallback, c.name)
	}
}

func TestSampleRepliesAndCalls(t *testing.T) {
	r := sample(t)
	d, err := r.Decide(event("CLICK", "BILL"))
	require.NoError(t, err)
	require.Equal(t, &engine.Call{Backend: "core", Method: "POST", Path: "/v1/bills", Timeout: 3e9,
		Body: []byte(`{"asked_at":1893456001,"channel":"wechat","openid":"oUser-1"}`)}, d.Call)
	require.Empty(t, d.Replies)

	require.NoError(t, d.Render(map[string]any{"month": "2026-11", "amount": 1234.5, "url": "https://bank.example/b?a=1&b=2"}))
	require.Equal(t, "您 2026-11 的账单为 1234.50 元。\nYour bill of 2026-11 is CNY 1234.50.\n"+
		`<a href="https://bank.example/b?a=1&b=2">查看明细 / Details</a>`, d.Replies[0].Text)
	require.NoError(t, d.Render(map[string]any{"month": "2026-11", "amount": int64(3)}))
	require.True(t, strings.HasSuffix(d.Replies[0].Text, "CNY 3.00."))
	require.Error(t, d.Render(map[string]any{"month": "2026-11"}), "a field is missing")
	require.Empty(t, d.Replies)
	require.Error(t, d.Render(nil))
	require.True(t, strings.HasPrefix(d.Fallback, "账单"))

	d, err = r.Decide(text("积分 2026"))
	require.NoError(t, err)
	require.Equal(t, "/v1/users/oUser-1/points?year=2026", d.Call.Path)
	require.Equal(t, wire.PreferLoss, d.Class)
	require.NoError(t, d.Render(map[string]any{"points": int64(9007199254740993)}))
	require.Contains(t, d.Replies[0].Text, "9007199254740993")
	require.Equal(t, "news", d.Replies[1].Type)

	d, err = r.Decide(event("subscribe", ""))
	require.NoError(t, err)
	require.Len(t, d.Replies, 2)
	require.Equal(t, []wire.MenuItem{{ID: "bill", Text: "查询账单 / My bill"}, {ID: "points", Text: "查询积分 / My points"}}, d.Replies[1].Menu.Items)

	d, err = r.Decide(event("unsubscribe", ""))
	require.NoError(t, err)
	var whole map[string]any
	require.NoError(t, json.Unmarshal(d.Call.Body, &whole))
	require.Equal(t, "unsubscribe", whole["event"])
	require.NoError(t, d.Render(nil))
	require.Empty(t, d.Replies)
}

func TestAtOnceIsForTheDoor(t *testing.T) {
	r := sample(t)
	a, ok := r.AtOnce(text("hours"))
	require.True(t, ok)
	require.Equal(t, "opening-hours", a.Rule)
	require.Contains(t, a.Text, "We are open")
	a, _ = r.AtOnce(text("营业时间"))
	require.Contains(t, a.Text, "周一至周五")

	a, ok = r.AtOnce(inHours(text("人工")))
	require.True(t, ok)
	require.Equal(t, engine.Instant{Rule: "human-desk", HandOver: true}, a)

	_, ok = r.AtOnce(text("hello"))
	require.False(t, ok, "the default rule is the robot's")
	broken := text("whatever")
	broken.Quarantined = "two openids"
	a, ok = r.AtOnce(broken)
	require.True(t, ok)
	require.Equal(t, engine.RuleFallback, a.Rule)
	require.Equal(t, r.FallbackFor(broken), a.Text)

	// The shape is the contract with the door, which declares it for itself.
	type door = func(*wire.Callback) (struct {
		Rule     string
		Text     string
		HandOver bool
		Desk     string
	}, bool)
	require.IsType(t, door(nil), r.AtOnce)

	// A door with older rules did not answer: the robot does, where it can.
	d, err := r.Decide(text("hours"))
	require.NoError(t, err)
	require.Len(t, d.Replies, 1)
	d, err = r.Decide(inHours(text("人工")))
	require.NoError(t, err)
	require.Empty(t, d.Replies)
	require.NotEmpty(t, d.NotHere)
}

func TestOrderDecidesBetweenDoorAndRobot(t *testing.T) {
	r := rules(t, `
  - name: first
    match: {text: {prefix: pay}}
    reply: {text: later}
  - name: second
    match: {text: {contains: pay}}
    answer: at_once
    reply: {text: now}
`)
	_, ok := r.AtOnce(text("pay me"))
	require.False(t, ok)
	a, ok := r.AtOnce(text("please pay me"))
	require.True(t, ok)
	require.Equal(t, "now", a.Text)
}

func TestAtOnceNeverAnswersWhatWeChatForbids(t *testing.T) {
	r := rules(t, `
  - name: any-event
    match: {message_type: event}
    answer: at_once
    reply: {text: hi}
`)
	for _, e := range []string{"LOCATION", "VIEW", "unsubscribe", "TEMPLATESENDJOBFINISH", "pic_sysphoto"} {
		_, ok := r.AtOnce(event(e, ""))
		require.False(t, ok, e)
	}
	_, ok := r.AtOnce(event("CLICK", "A"))
	require.True(t, ok)
}

func TestAccountsAreApart(t *testing.T) {
	r := rules(t, `
  - name: of-a
    accounts: a
    match: {default: true}
    reply: {text: from a}
  - name: of-others
    match: {default: true}
    reply: {text: from others}
`)
	for account, rule := range map[string]string{"a": "of-a", "b": "of-others"} {
		c := text("x")
		c.Account = account
		d, err := r.Decide(c)
		require.NoError(t, err)
		require.Equal(t, rule, d.Rule)
	}
}

func TestLongTextIsCutAndSaid(t *testing.T) {
	r := rules(t, `
  - name: echo
    match: {text: {any: true}}
    reply: {text: "{{ .Content }}"}
`)
	d, err := r.Decide(text(strings.Repeat("好", 2000)))
	require.NoError(t, err)
	require.LessOrEqual(t, len(d.Replies[0].Text), engine.MaxText)
	require.True(t, strings.HasSuffix(d.Replies[0].Text, "好…"))
	require.Equal(t, []string{"reply 1 was cut from 6000 to 2048 bytes"}, d.Notes)

	d, err = r.Decide(text("   "))
	require.NoError(t, err)
	require.Empty(t, d.Replies, "an empty text is silence")
}

func TestMissingFileSaysWhatToDo(t *testing.T) {
	_, err := engine.Load("absent.yaml", engine.Known{})
	require.ErrorContains(t, err, "(rules)")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	big := t.TempDir() + "/big.yaml"
	require.NoError(t, os.WriteFile(big, []byte(strings.Repeat("#", 1<<20+1)), 0o600))
	_, err = engine.Load(big, engine.Known{})
	require.ErrorContains(t, err, "more than")
}
