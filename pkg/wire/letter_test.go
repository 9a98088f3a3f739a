package wire_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// samples holds one letter of each kind with every field set, so that a
// renamed or dropped field shows up as a changed golden file.
func samples() map[string]wire.Letter {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	return map[string]wire.Letter{
		"callback": &wire.Callback{
			ID: "25770000000000000000001", IdentityHash: "aa", Identity: "card/oX/msg/1", Account: "card", OpenID: "oX", ToUser: "gh_1",
			MsgType: "text", Event: "CLICK", EventKey: "k", MsgID: "9007199254740993", CreateTime: 1893456001, Content: "<b>急</b> & \u2028 谢谢",
			Fields: map[string]string{"PicUrl": "http://x/?a=1&b=2"}, ReceivedAt: 1893456001123, Answered: "fallback", Unchecked: true,
			Quarantined: "sender", Body: []byte("<xml/>"), TraceParent: trace,
			ReplayOf: "25770000000000000000009",
		},
		"reply": &wire.Reply{
			ID: "25770000000000000000002", IdentityHash: "bb", CallbackID: "25770000000000000000001", Ordinal: 1, Account: "card", OpenID: "oX",
			Content: wire.Content{Type: "msgmenu", Text: "t", MediaID: "m", News: &wire.Article{Title: "T", Description: "D", URL: "http://u?a&b", PicURL: "http://p"},
				Menu: &wire.Menu{Head: "h", Items: []wire.MenuItem{{ID: "1", Text: "是"}}, Tail: "t"}},
			Class: wire.PreferDuplicate, Rule: "balance", ReceivedAt: 1, CreatedAt: 2, ExpiresAt: 3, ResendOf: "25770000000000000000008", TraceParent: trace,
		},
		"push": &wire.Push{
			ID: "15770000000000000000003", IdentityHash: "cc", Account: "card", App: "loans", Lane: wire.LaneBulk, PushKind: wire.PushSubscription,
			OpenID: "oX", TemplateID: "T1", Data: map[string]string{"thing1": "a<b"}, URL: "https://u/?a=1&b=2", Page: "p", MiniAppID: "wx1", MiniPath: "/p",
			Reference: "ref", ResendOf: "15770000000000000000001", AcceptedAt: 1, ExpiresAt: 2, TraceParent: trace,
		},
		"receipt": &wire.Receipt{
			Source: wire.FromWeChat, MessageKind: wire.KindPush, ID: "15770000000000000000003", IdentityHash: "cc", Account: "card", OpenID: "oX", App: "loans",
			Lane: wire.LaneBulk, TemplateID: "T1", Reference: "ref", CallbackID: "1", ResendOf: "2", State: wire.FailedByPlatform, Reason: "failed: system failed",
			ErrCode: 43004, MsgID: "9007199254740993", Event: "TEMPLATESENDJOBFINISH", Attempt: 2, Line: "main", Detail: "rule 1", PossibleDuplicate: true, At: 4, TraceParent: trace,
		},
		"repeat": &wire.Repeat{ID: "25770000000000000000001", IdentityHash: "aa", Account: "card", OpenID: "oX", Action: "CLICK:k", Of: "card/oX/1", Reason: "same action within 10s",
			Rule: "proxy.repeats.rules[0]", WindowMS: 10_000, At: 5, TraceParent: trace},
		"deadletter": &wire.DeadLetter{ID: "1", Account: "card", OpenID: "oX", Room: "robot", Reason: "no JSON", Topic: "tidegate.card.callbacks", Partition: 3, Offset: 9,
			Headers: []wire.Header{{Key: "v", Value: []byte("1")}}, Key: []byte("oX"), Value: []byte("{"), At: 6},
		"replay": &wire.Replay{ID: "25770000000000000000004", Of: "3f9ac01b77d2", ReplayOf: "25770000000000000000001", Account: "card", OpenID: "oX",
			Topic: "tidegate.card.callbacks", Attempt: 1, By: "li@ops-1", At: 7},
	}
}

func TestGoldenEncodings(t *testing.T) {
	for name, l := range samples() {
		t.Run(name, func(t *testing.T) {
			key, value, headers, err := wire.Encode(l)
			require.NoError(t, err)
			require.Equal(t, "oX", string(key))
			var b strings.Builder
			for _, h := range headers {
				b.WriteString(h.Key + ": " + string(h.Value) + "\n")
			}
			b.WriteString("\n" + string(value) + "\n")
			path := filepath.Join("testdata", name+".golden")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String())
		})
	}
}

func TestLetterWithoutFollowerHasNoKey(t *testing.T) {
	key, _, _, err := wire.Encode(&wire.DeadLetter{Account: "card", Room: "robot", Reason: "no JSON"})
	require.NoError(t, err)
	require.Nil(t, key)
}

// A record of Kafka's full size must not be refused as a dead letter for ever.
func TestDeadLetterAlwaysFits(t *testing.T) {
	huge := make([]byte, 1_000_000)
	for name, d := range map[string]*wire.DeadLetter{
		"value":   {ID: "25770000000000000000001", Value: huge},
		"headers": {ID: string(huge), Headers: []wire.Header{{Key: "x", Value: huge}}},
		"key":     {Key: huge, Reason: strings.Repeat("长", 1000)},
	} {
		d.Room, d.Topic, d.Partition, d.Offset = "sender", "tidegate.card.replies", 2, 7
		_, value, headers, err := wire.Encode(d)
		require.NoError(t, err, name)
		got, err := wire.Decode[wire.DeadLetter](value, headers)
		require.NoError(t, err, name)
		require.Contains(t, got.Reason, "read it at its offset", name)
		require.Empty(t, got.Value, name)
		require.EqualValues(t, 7, got.Offset, name)
		require.LessOrEqual(t, len(got.ID), 64, name)
	}
	_, _, _, err := wire.Encode(&wire.Reply{Content: wire.Content{Type: "text", Text: string(huge)}})
	require.ErrorIs(t, err, wire.ErrTooLarge)
}

// The decoder's own error would quote the value.
func TestErrorsDoNotQuoteLetters(t *testing.T) {
	_, _, headers, err := wire.Encode(samples()["reply"])
	require.NoError(t, err)
	_, err = wire.Decode[wire.Reply]([]byte(`{"openid": 13800138000}`), headers)
	require.ErrorIs(t, err, wire.ErrNotJSON)
	require.NotContains(t, err.Error(), "138")
}

func roundTrip[T any, P interface {
	*T
	wire.Letter
}](t *testing.T, l P) {
	t.Helper()
	_, value, headers, err := wire.Encode(l)
	require.NoError(t, err)
	got, err := wire.Decode[T, P](value, headers)
	require.NoError(t, err)
	require.Equal(t, (*T)(l), got)
}

func TestEveryLetterComesBackWhole(t *testing.T) {
	s := samples()
	roundTrip(t, s["callback"].(*wire.Callback))
	roundTrip(t, s["reply"].(*wire.Reply))
	roundTrip(t, s["push"].(*wire.Push))
	roundTrip(t, &wire.Push{ID: "15770000000000000000004", Account: "card", App: "loans", Lane: wire.LaneRealtime, PushKind: wire.PushCustom, OpenID: "oX",
		AcceptedAt: 1, ExpiresAt: 9, NotBefore: 5, CallbackURL: "https://crm.example/hook?a=1&b=2", Class: wire.PreferLoss,
		Content: &wire.Content{Type: "text", Text: "<a href=\"https://x/?a&b\">账单</a>"}})
	roundTrip(t, s["receipt"].(*wire.Receipt))
	roundTrip(t, s["repeat"].(*wire.Repeat))
	roundTrip(t, s["deadletter"].(*wire.DeadLetter))
	roundTrip(t, s["replay"].(*wire.Replay))
}

func TestHTMLIsNotEscaped(t *testing.T) {
	_, value, _, err := wire.Encode(samples()["callback"])
	require.NoError(t, err)
	require.Contains(t, string(value), "<b>急</b> & ")
}

func TestAnOlderReaderSkipsNewFields(t *testing.T) {
	_, value, headers, err := wire.Encode(samples()["reply"])
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(value, &m))
	m["field_of_next_year"] = map[string]any{"x": 1}
	value, err = json.Marshal(m)
	require.NoError(t, err)
	got, err := wire.Decode[wire.Reply](value, headers)
	require.NoError(t, err)
	require.Equal(t, "25770000000000000000002", got.ID)
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	_, value, headers, err := wire.Encode(samples()["reply"])
	require.NoError(t, err)
	_, err = wire.Decode[wire.Push](value, headers)
	require.ErrorIs(t, err, wire.ErrUnknownKind)
	headers[0].Value = []byte("2")
	_, err = wire.Decode[wire.Reply](value, headers)
	require.ErrorIs(t, err, wire.ErrNewer)
	headers[0].Value = []byte("x")
	_, err = wire.Decode[wire.Reply](value, headers)
	require.ErrorIs(t, err, wire.ErrUnknownKind)
	headers[0].Value = []byte("1")
	_, err = wire.Decode[wire.Reply]([]byte("{"), headers)
	require.Error(t, err)
	_, err = wire.Decode[wire.Reply](make([]byte, wire.MaxValue+1), headers)
	require.ErrorIs(t, err, wire.ErrTooLarge)
}

func TestTooLargeALetterIsRefusedBeforeTheQueue(t *testing.T) {
	_, _, _, err := wire.Encode(&wire.Callback{Body: make([]byte, wire.MaxValue)})
	require.ErrorIs(t, err, wire.ErrTooLarge)
}

func FuzzDecode(f *testing.F) {
	for _, l := range samples() {
		_, value, headers, err := wire.Encode(l)
		require.NoError(f, err)
		f.Add(value, wire.HeaderValue(headers, "kind"), "1")
	}
	f.Add([]byte("{"), "reply", "99")
	f.Fuzz(func(t *testing.T, value []byte, kind, v string) {
		h := []wire.Header{{Key: "kind", Value: []byte(kind)}, {Key: "v", Value: []byte(v)}}
		if c, err := wire.Decode[wire.Callback](value, h); err == nil {
			if _, _, _, err := wire.Encode(c); err != nil && len(value) < wire.MaxValue/8 {
				t.Fatal(err)
			}
		}
		_, _ = wire.Decode[wire.Receipt](value, h)
		_, _ = wire.Decode[wire.DeadLetter](value, h)
	})
}

// A door of an earlier release did not say which rule decided; its letters may
// lie in the queue while the readers are new.
func TestARepeatOfAnEarlierDoorIsRead(t *testing.T) {
	_, _, headers, err := wire.Encode(samples()["repeat"])
	require.NoError(t, err)
	got, err := wire.Decode[wire.Repeat]([]byte(`{"id":"25770000000000000000001","account":"card","openid":"oX","action":"CLICK:k","reason":"same action within 10s","at":5}`), headers)
	require.NoError(t, err)
	require.Equal(t, &wire.Repeat{ID: "25770000000000000000001", Account: "card", OpenID: "oX", Action: "CLICK:k", Reason: "same action within 10s", At: 5}, got)
}
