package app

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tidegate/pkg/wire"
	"tidegate/robot/backend"
	"tidegate/robot/engine"
)

// RulesTry says what a follower does, to see what would be answered and why.
type RulesTry struct {
	RulesOptions
	Event    string // first, if there is one
	EventKey string
	Type     string   // message type of a message without text, such as image
	Texts    []string // then these messages, in order
	MenuItem string   // the line of a menu message that the last text is from
	Account  string
	OpenID   string
	At       string        // of the first; empty is now
	Pause    time.Duration // between them
	Language string
	Vars     map[string]string
	Answer   string // JSON that every back end answers; empty shows no replies after a call
	All      bool   // list every rule that was passed over
}

// maxPassed is how many rules that were passed over are listed without All.
const maxPassed = 12

// Try prints, for each message or event in order, which rule would take it and
// why the ones before did not, what would be called, and what the follower would
// see. Dialogues go on from one message to the next. Nothing is called and
// nothing is stored.
func (o RulesTry) Try() error {
	rules, err := o.load()
	if err != nil {
		return err
	}
	at, err := o.begin()
	if err != nil {
		return usage(err)
	}
	var answer any
	if o.Answer != "" {
		if answer, err = backend.Decode([]byte(o.Answer)); err != nil {
			return usage(fmt.Errorf("--answer: this is no JSON: %w", err))
		}
	}
	acts := o.acts()
	if len(acts) == 0 {
		return usage(fmt.Errorf("say what the follower does: --text \"…\" (several times for a dialogue), --event CLICK --event-key BILL, or --type image"))
	}
	t := &trial{RulesTry: o, rules: rules, answer: answer}
	fmt.Fprintf(o.Out, "%s, version %s, %s\n", o.File, rules.Version(), counted(rules.Len(), "rule"))
	for i, c := range acts {
		c.ID, c.ReceivedAt, c.CreateTime = fmt.Sprintf("%023d", i+1), at.UnixMilli(), at.Unix()
		fmt.Fprintf(o.Out, "\n%d. %s\n", i+1, title(c, at))
		t.one(c)
		at = at.Add(o.Pause)
	}
	if t.failed {
		return ErrReported
	}
	return nil
}

// begin reads --at; times without a zone are Beijing's.
func (o RulesTry) begin() (time.Time, error) {
	if o.At == "" {
		return time.Now(), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, o.At, chinaTime); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--at %q: write 2026-10-10 09:30 (Beijing) or 2026-10-10T09:30:00+08:00", o.At)
}

// chinaTime is UTC+8, which has no summer time.
var chinaTime = time.FixedZone("CST", 8*60*60)

// acts are the callbacks to try.
func (o RulesTry) acts() (out []*wire.Callback) {
	base := wire.Callback{Account: o.Account, OpenID: o.OpenID, Fields: map[string]string{}}
	if o.Event != "" {
		c := base
		c.MsgType, c.Event, c.EventKey = "event", o.Event, o.EventKey
		out = append(out, &c)
	}
	if o.Type != "" {
		c := base
		c.MsgType = o.Type
		out = append(out, &c)
	}
	for i, text := range o.Texts {
		c := base
		c.MsgType, c.Content = "text", text
		if i == len(o.Texts)-1 && o.MenuItem != "" {
			c.Fields = map[string]string{"bizmsgmenuid": o.MenuItem}
		}
		out = append(out, &c)
	}
	return out
}

func title(c *wire.Callback, at time.Time) string {
	what := fmt.Sprintf("%s %q", c.MsgType, c.Content)
	switch {
	case c.MsgType == "event":
		what = fmt.Sprintf("event %s %q", c.Event, c.EventKey)
	case c.MsgType != "text":
		what = c.MsgType
	}
	return fmt.Sprintf("%s, account %s, %s", what, c.Account, at.In(chinaTime).Format("Mon 2006-01-02 15:04:05 MST"))
}

// trial is the state of a run of Try.
type trial struct {
	RulesTry
	rules  *engine.Rules
	state  *engine.State
	answer any
	failed bool
}

func (t *trial) line(name, format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n"+strings.Repeat(" ", 14))
	fmt.Fprintf(t.Out, "   %-10s %s\n", name, text)
}

func (t *trial) one(c *wire.Callback) {
	s := engine.Situation{State: t.state, Language: t.Language, Vars: map[string]any{}}
	for k, v := range t.Vars {
		s.Vars[k] = v
	}
	if t.door(c, s) {
		return
	}
	d, passed, err := t.rules.Explain(c, s)
	t.passed(passed)
	if d.Rule == "" {
		t.line("rule", "none matches: silence")
	} else {
		t.line("rule", "%s, line %d, level %s", d.Rule, d.Line(), t.rules.TermsIn(c, s).Level)
	}
	if err != nil {
		t.fails(d, err)
		return
	}
	if d.Limit != nil {
		t.line("limit", "%d per %s for each follower; not counted here", d.Limit.Times, d.Limit.Per)
	}
	t.effects(c, &d)
	if d.Moves {
		t.state = d.State
	}
}

// door shows what the acknowledgement answers, if it does.
func (t *trial) door(c *wire.Callback, s engine.Situation) bool {
	a, ok := t.rules.AtOnce(c)
	if !ok {
		return false
	}
	_, passed, _ := t.rules.Explain(c, engine.Situation{}) // the door knows no dialogues
	t.passed(passed)
	t.line("rule", "%s, answered by the door in the acknowledgement", a.Rule)
	if a.HandOver {
		t.line("reply", "hand-over to a person%s", strings.TrimRight(" "+a.Desk, " "))
	} else {
		t.line("reply", "text: %s", a.Text)
	}
	c.Answered = a.Rule
	if d := t.rules.Answered(c, s); d.Moves {
		t.state = nil
		t.line("dialogue", "%s: it ends", d.Trail)
	}
	return true
}

func (t *trial) passed(passed []engine.Passed) {
	for i, p := range passed {
		if !t.All && len(passed) > maxPassed && i >= maxPassed {
			t.line("passed", "… and %d more; --all lists them", len(passed)-i)
			return
		}
		t.line("passed", "%s, line %d: %s", p.Rule, p.Line, p.Why)
	}
}

func (t *trial) fails(d engine.Decision, err error) {
	t.failed = true
	t.line("error", "%v", err)
	if d.Fallback != "" {
		t.line("reply", "fallback text: %s", d.Fallback)
	}
}

// effects shows what would be called, and what the follower would see.
func (t *trial) effects(c *wire.Callback, d *engine.Decision) {
	switch {
	case d.Call != nil:
		t.line("call", "%s %s %s%s", d.Call.Method, d.Call.Backend, d.Call.Path, strings.TrimRight(" "+string(d.Call.Body), " "))
		if t.answer == nil {
			t.line("", "not made; --answer '{…}' shows the replies to an answer")
			t.fallback(d)
			return
		}
		if err := d.Render(t.answer); err != nil {
			t.fails(*d, err)
			return
		}
	case d.Ask != nil:
		t.line("engine", "%s is asked; not done here", d.Ask.Engine)
		t.fallback(d)
		return
	case d.Bot != "":
		t.line("bot", "%s is given the callback; not done here", d.Bot)
		t.fallback(d)
		return
	}
	if d.Trail != "" {
		t.line("dialogue", "%s%s", d.Trail, t.waits(d))
	}
	for _, content := range d.Replies {
		t.line("reply", "%s", shown(content))
	}
	for _, note := range d.Notes {
		t.line("note", "%s", note)
	}
	if len(d.Replies) == 0 && d.Rule != "" {
		t.line("reply", "none%s", strings.TrimRight(": "+d.NotHere, ": "))
	}
}

func (t *trial) fallback(d *engine.Decision) {
	if d.Trail != "" {
		t.line("dialogue", "%s", d.Trail)
	}
	if d.Fallback != "" {
		t.line("fallback", "if it fails: %s", d.Fallback)
	}
}

func (t *trial) waits(d *engine.Decision) string {
	if d.State == nil {
		return ""
	}
	names := make([]string, 0, len(d.State.Vars))
	for k, v := range d.State.Vars {
		names = append(names, fmt.Sprintf("%s=%q", k, v))
	}
	text := fmt.Sprintf("; the answer has %s", d.Patience())
	if len(names) > 0 {
		text += "; stored: " + strings.Join(sorted(names), " ")
	}
	return text
}

func shown(c wire.Content) string {
	switch {
	case c.News != nil:
		return fmt.Sprintf("news: %s\n%s\n%s", c.News.Title, c.News.Description, c.News.URL)
	case c.Menu != nil:
		lines := []string{"menu: " + c.Menu.Head}
		for _, i := range c.Menu.Items {
			lines = append(lines, fmt.Sprintf("[%s] %s", i.ID, i.Text))
		}
		return strings.TrimRight(strings.Join(append(lines, c.Menu.Tail), "\n"), "\n")
	case c.MediaID != "":
		return c.Type + ": " + c.MediaID
	}
	return c.Type + ": " + c.Text
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
