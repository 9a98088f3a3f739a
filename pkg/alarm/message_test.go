package alarm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("", 8*3600))

func rendered(t *testing.T, robot, language string, tr Transition, reminder bool) map[string]any {
	t.Helper()
	f, err := loadForm(robot)
	require.NoError(t, err)
	b, err := f.render(newMessage(tr, reminder, "door-1", language, "https://runbook.example/"))
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(b, &m))
	return m
}

// text collects every text value of a document.
func text(v any) string {
	var b strings.Builder
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		for _, x := range v {
			b.WriteString(text(x) + "\n")
		}
	case []any:
		for _, x := range v {
			b.WriteString(text(x) + "\n")
		}
	}
	return b.String()
}

func TestEveryRobotIsToldEverythingInBothLanguages(t *testing.T) {
	firing := Transition{Alarm: faulty, Firing: true, Since: noon, At: noon}
	resolved := Transition{Alarm: faulty, Since: noon, At: noon.Add(90 * time.Second)}
	for _, robot := range []string{wecom, dingtalk, feishu} {
		en, zh := text(rendered(t, robot, English, firing, false)), text(rendered(t, robot, Chinese, firing, false))
		for _, part := range []string{"[Alarm] ", "A queue makes no progress", faulty.Text, "bank callbacks/3", "critical", "door-1", "2026-03-01 12:00:00 +08:00", "https://runbook.example/#queue_faulty", "Tidegate queue_faulty"} {
			require.Contains(t, en, part, robot)
		}
		for _, part := range []string{"【告警】", "队列停滞", faulty.TextZH, "bank callbacks/3", "严重", "节点", "处理手册", "Tidegate queue_faulty"} {
			require.Contains(t, zh, part, robot)
		}
		require.NotContains(t, zh, faulty.Text, robot)
		require.Contains(t, text(rendered(t, robot, Chinese, firing, true)), "【仍在告警】", robot)
		ended := text(rendered(t, robot, English, resolved, false))
		require.Contains(t, ended, "[Resolved] ", robot)
		require.Contains(t, strings.ReplaceAll(ended, "**", ""), "Ended: 2026-03-01 12:01:30 +08:00", robot)
		require.Contains(t, ended, "1m30s", robot)
		require.Contains(t, ended, "It is over; it lasted 1m30s. Before: "+faulty.Text, robot)
		over := text(rendered(t, robot, Chinese, resolved, false))
		require.Contains(t, over, "【已恢复】", robot)
		require.Contains(t, over, "已恢复，持续了 1m30s。恢复前："+faulty.TextZH, robot)
	}
	require.Equal(t, "markdown", rendered(t, wecom, English, firing, false)["msgtype"])
	require.Equal(t, "markdown", rendered(t, dingtalk, English, firing, false)["msgtype"])
	require.Equal(t, "interactive", rendered(t, feishu, English, firing, false)["msg_type"])
	require.NotContains(t, rendered(t, feishu, English, firing, false), "sign", "without a secret there is no signature")
}

func TestTheGenericMessage(t *testing.T) {
	m := rendered(t, generic, English, Transition{Alarm: faulty, Since: noon, At: noon.Add(time.Minute)}, false)
	require.NotEmpty(t, m["id"])
	delete(m, "id")
	require.Equal(t, map[string]any{
		"status": "resolved", "reminder": false, "name": "queue_faulty", "title": "A queue makes no progress", "subject": "bank callbacks/3", "severity": "critical",
		"text": "It is over; it lasted 1m0s. Before: " + faulty.Text, "runbook": "https://runbook.example/#queue_faulty", "node": "door-1", "since": "2026-03-01T04:00:00Z", "at": "2026-03-01T04:01:00Z",
	}, m)
}

// The largest message must fit what the strictest robot takes: 4096 bytes.
func TestALongTextStillFits(t *testing.T) {
	a := faulty
	a.Text, a.TextZH = strings.Repeat("x", 100_000), strings.Repeat("积", 100_000)
	tr := Transition{Alarm: a, Firing: true, Since: noon, At: noon}
	for _, language := range []string{English, Chinese} {
		content := rendered(t, wecom, language, tr, false)["markdown"].(map[string]any)["content"].(string)
		require.LessOrEqual(t, len(content), 4096)
		require.Contains(t, content, "…")
	}
}

func TestWhatNeedsEscapingArrivesAsItWas(t *testing.T) {
	a := faulty
	a.Text, a.Subject = "quote \" back \\ line\nbell \x07 <b>", `bank "x"`
	m := rendered(t, generic, English, Transition{Alarm: a, Firing: true, Since: noon, At: noon}, false)
	require.Equal(t, a.Text, m["text"])
	require.Equal(t, a.Subject, m["subject"])
}

func TestTemplatesAreTriedBeforeTheyAreNeeded(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"syntax.json":    {`{{.Name`, "template"},
		"unknown.json":   {`{"a": {{json .Colour}}}`, "Colour"},
		"unescaped.txt":  {`{{.Text}}`, ""},
		"raw.json":       {`{"text": "{{.Text}}"}`, "is not JSON"},
		"good.json":      {`{"text": {{json .Text}}, "at": {{json (clock .At)}}}`, ""},
		"good.json.tmpl": {`{{if .Firing}}{"s": {{json .Words.Head}}}{{else}}[]{{end}}`, ""},
		"endless.json":   {`{{printf "%70000s" "x"}}`, "more than"},
		"half.json":      {`{{if .Firing}}{}{{else}}{{end}}`, "is not JSON"},
		"big.json":       {strings.Repeat(" ", maxTemplate+1), "at most"},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		_, err := loadForm(path)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.want, name)
	}
	_, err := loadForm(filepath.Join(dir, "absent.json"))
	require.ErrorContains(t, err, "use generic, wecom, dingtalk, feishu or a file")
}

func TestEveryTitleIsThereTwice(t *testing.T) {
	for _, n := range Names() {
		require.NotEmpty(t, titleOf(n, English), n)
		require.NotEqual(t, titleOf(n, English), titleOf(n, Chinese), n)
	}
	require.Equal(t, "unheard_of", titleOf("unheard_of", Chinese))
}
