package alarm

import (
	"crypto/rand"
	"time"
	"unicode/utf8"
)

// message is what one webhook is told, and what a template sees.
type message struct {
	// ID is the same for every try, so that a receiver can recognise repeats.
	ID       string
	Status   string // firing or resolved
	Firing   bool
	Reminder bool // it was told before and still fires
	Name     string
	Title    string
	Subject  string
	Severity string
	Text     string
	Runbook  string
	Node     string
	Since    time.Time
	At       time.Time
	Language string
	Words    words

	// Timestamp and Sign are for robots that look for a signature in the body;
	// empty without a secret.
	Timestamp string
	Sign      string
}

// words are the fixed words of a message in its language.
type words struct {
	Head, Severity, Subject, Node, Since, Ended, Lasted, Runbook string
}

// maxText bounds what a message carries of an alarm's text: robots refuse
// messages beyond some kilobytes.
const maxText = 1000

// newMessage puts a transition into a language.
func newMessage(t Transition, reminder bool, node, language, runbook string) message {
	m := message{
		ID: rand.Text(), Status: "resolved", Firing: t.Firing, Reminder: reminder, Name: t.Name, Title: titleOf(t.Name, language),
		Subject: cut(t.Subject, 200), Severity: string(t.Severity), Text: cut(t.Text, maxText), Runbook: runbook + "#" + t.Name,
		Node: node, Since: t.Since, At: t.At, Language: language, Words: wordsOf(t, reminder, language),
	}
	if t.Firing {
		m.Status = "firing"
	}
	if language == Chinese && t.TextZH != "" {
		m.Text = cut(t.TextZH, maxText)
	}
	if !t.Firing {
		m.Text = cut(over(m.Lasted(), m.Text, language), maxText)
	}
	return m
}

// over is the text of an end: what was seen is past.
func over(lasted, text, language string) string {
	if language == Chinese {
		return "已恢复，持续了 " + lasted + "。恢复前：" + text
	}
	return "It is over; it lasted " + lasted + ". Before: " + text
}

// Lasted is how long the condition has held.
func (m message) Lasted() string { return m.At.Sub(m.Since).Round(time.Second).String() }

func wordsOf(t Transition, reminder bool, language string) words {
	if language == Chinese {
		w := words{Severity: "级别：警告", Subject: "对象", Node: "节点", Since: "开始时间", Ended: "恢复时间", Lasted: "已持续", Runbook: "处理手册"}
		if t.Severity == Critical {
			w.Severity = "级别：严重"
		}
		switch {
		case !t.Firing:
			w.Head = "【已恢复】"
		case reminder:
			w.Head = "【仍在告警】"
		default:
			w.Head = "【告警】"
		}
		return w
	}
	w := words{Severity: "Severity: warning", Subject: "Subject", Node: "Node", Since: "Since", Ended: "Ended", Lasted: "Lasted", Runbook: "Runbook"}
	if t.Severity == Critical {
		w.Severity = "Severity: critical"
	}
	switch {
	case !t.Firing:
		w.Head = "[Resolved] "
	case reminder:
		w.Head = "[Still firing] "
	default:
		w.Head = "[Alarm] "
	}
	return w
}

// cut shortens a text to so many letters.
func cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
