package wechatsim

import (
	"encoding/xml"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestConfigMistakesAreNamed(t *testing.T) {
	require.NoError(t, testConfig(ModeSafe).Validate())
	for says, change := range map[string]func(*Config){
		"at least one account":    func(c *Config) { c.Accounts = nil },
		"deliveries 11":           func(c *Config) { c.Deliveries = 11 },
		"must not be negative":    func(c *Config) { c.Timeout = -1 },
		"counts must not be":      func(c *Config) { c.MaxInFlight = -1 },
		"use same_msgid":          func(c *Config) { c.Open.RepeatedClientMsgID = "maybe" },
		"use 0, 40033 or 47002":   func(c *Config) { c.Open.EscapeErrcode = 1 },
		"app_id, secret":          func(c *Config) { c.Accounts[0].Secret = "" },
		"use plain, compatible":   func(c *Config) { c.Accounts[0].Mode = "open" },
		"WeChat makes it 43":      func(c *Config) { c.Accounts[0].EncodingAESKey = "short" },
		"is not base64":           func(c *Config) { c.Accounts[0].EncodingAESKey = strings.Repeat("!", 43) },
		"start with http":         func(c *Config) { c.Accounts[0].CallbackURL = "localhost:80" },
		"is used twice":           func(c *Config) { c.Accounts = append(c.Accounts, c.Accounts[0]) },
		"followers -1":            func(c *Config) { c.Accounts[0].Followers = -1 },
		"windows must not":        func(c *Config) { c.Limits.Menu.Count = -1 },
		"longer than":             func(c *Config) { c.Limits.TokenLife = time.Minute },
		"durations must not":      func(c *Config) { c.Limits.ForcedGap = -1 },
		"a quota must not":        func(c *Config) { c.Limits.Daily = map[string]int{PathToken: -1} },
		"limits: counts must not": func(c *Config) { c.Limits.UserPage = -1 },
	} {
		cfg := testConfig(ModeSafe)
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), says)
		_, err := New(cfg, zap.NewNop())
		require.ErrorContains(t, err, says)
	}
}

func TestLeftOutNumbersTakeDefaults(t *testing.T) {
	s, err := New(Config{Accounts: []Account{testAccount(ModePlain)}}, zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	got, want := s.cfg, DefaultConfig()
	require.Equal(t, want.Limits, got.Limits)
	require.Equal(t, want.Timeout, got.Timeout)
	require.Equal(t, want.Deliveries, got.Deliveries)
	require.Equal(t, want.Journal, got.Journal)
}

func TestFollowerNamesDependOnTheSeedOnly(t *testing.T) {
	a, b := quietSim(t, nil), quietSim(t, nil)
	idsA, _ := a.Followers("", 0)
	idsB, _ := b.Followers("", 0)
	require.Equal(t, idsA, idsB)
	c := quietSim(t, func(c *Config) { c.Seed = 8 })
	idsC, _ := c.Followers("", 0)
	require.NotEqual(t, idsA, idsC)
	for _, id := range idsA {
		require.Len(t, id, 28)
	}
}

// outline is the elements of a document in order, without contents.
func outline(t *testing.T, doc []byte) []string {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(string(doc)))
	var names []string
	for {
		tok, err := dec.Token()
		if err != nil {
			return names
		}
		if e, isStart := tok.(xml.StartElement); isStart {
			names = append(names, e.Name.Local)
		}
	}
}

func TestDocumentsAreBuiltLikeTheSamples(t *testing.T) {
	media := func(kind string) Stimulus {
		s, err := Media(sampleUser, kind)
		require.NoError(t, err)
		return s
	}
	for sample, stim := range map[string]Stimulus{
		"msg-text":                            Text(sampleUser, "x"),
		"msg-text-menu-click":                 MsgMenu(sampleUser, "101", "满意"),
		"msg-image":                           media("image"),
		"msg-video":                           media("video"),
		"msg-shortvideo":                      media("shortvideo"),
		"msg-location":                        media("location"),
		"msg-link":                            media("link"),
		"event-click":                         Menu(sampleUser, "K"),
		"event-view":                          View(sampleUser, "http://x.invalid/"),
		"event-scan":                          Scan(sampleUser, "s"),
		"event-subscribe":                     Subscribe(sampleUser, ""),
		"event-subscribe-qrscene":             Subscribe(sampleUser, "s"),
		"event-unsubscribe":                   Unsubscribe(sampleUser),
		"event-location":                      Location(sampleUser),
		"event-TEMPLATESENDJOBFINISH-success": templateFinish(sampleUser, 7, "success"),
		"event-subscribe_msg_sent_event":      subscribeSent(sampleUser, "T", 7, "success"),
		"event-subscribe_msg_popup_event":     popup(sampleUser, []string{"T", "U"}, true),
	} {
		want, err := os.ReadFile("../testdata/callback/" + sample + ".xml")
		require.NoError(t, err)
		got := stim.document(testGhID, time.Unix(1893456001, 0), 5, false)
		require.Equal(t, outline(t, want), outline(t, got), sample)
		require.Equal(t, strings.Count(string(want), "CDATA"), strings.Count(string(got), "CDATA"), "%s: %s", sample, got)
	}
	_, err := Media(sampleUser, "hologram")
	require.ErrorContains(t, err, "use text, image")
}

func TestUserTextIsPassedThroughRawOrSplit(t *testing.T) {
	evil := Text(sampleUser, "]]></Content><MsgType>event</MsgType>")
	raw := string(evil.document(testGhID, time.Now(), 5, false))
	require.Contains(t, raw, "<![CDATA[]]></Content><MsgType>event</MsgType>]]>")
	split := evil.document(testGhID, time.Now(), 5, true)
	require.Equal(t, "]]></Content><MsgType>event</MsgType>", elements(split)["Content"])
	require.Equal(t, "text", elements(split)["MsgType"])
}
