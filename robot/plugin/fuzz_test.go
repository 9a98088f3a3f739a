package plugin_test

import (
	"strings"
	"testing"

	"tidegate/robot/engine"
	"tidegate/robot/plugin"
)

// FuzzAnswer feeds arbitrary answers: no panic, and what is taken is within
// WeChat's bounds and brings no anchor.
func FuzzAnswer(f *testing.F) {
	f.Add(`{"replies":[{"type":"text","text":"a <a href='x'>"},{"type":"menu","menu":{"head":"h","items":[{"id":"a","text":"A"}]}}],"dialogue":"stay","vars":{"a":"b"}}`)
	f.Add(`{"replies":[{"type":"news","news":{"title":"t","url":"https://x.example/","pic_url":"http://y"}}],"hand_over":true}`)
	f.Add(`{"silence":true}`)
	f.Add(`{"replies":[{"type":"image","media_id":"M"}],"vars":null}`)
	f.Fuzz(func(t *testing.T, body string) {
		said, err := plugin.Read([]byte(body))
		if err != nil {
			return
		}
		if len(said.Replies) > engine.MaxReplies || len(said.Vars) > 32 {
			t.Fatal("more than the bounds")
		}
		for _, c := range said.Replies {
			if c.Type == "text" && (len(c.Text) > engine.MaxText || strings.TrimSpace(c.Text) == "" || strings.Contains(strings.ToLower(c.Text), "<a")) {
				t.Fatalf("%q was taken", c.Text)
			}
			if c.News != nil && !strings.HasPrefix(strings.ToLower(c.News.URL), "http") {
				t.Fatalf("%q was taken", c.News.URL)
			}
		}
	})
}
