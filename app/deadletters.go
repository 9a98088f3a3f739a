package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"tidegate/app/deadletters"
	"tidegate/pkg/telemetry"
)

// DeadLettersOptions choose among the dead letters.
type DeadLettersOptions struct {
	Source
	Account, Room, Reason string
	Since                 time.Duration // how far back; 0 is as far as the topic goes
	Names                 []string
	Out                   io.Writer
}

// filter checks what a user can get wrong.
func (o DeadLettersOptions) filter(c Config) (deadletters.Filter, error) {
	f := deadletters.Filter{Account: o.Account, Room: o.Room, Reason: o.Reason, Names: o.Names}
	switch {
	case o.Since < 0:
		return f, usage(fmt.Errorf("--since %s: use a positive duration, for example 24h, or 0 for all", o.Since))
	case o.Account != "" && !slices.Contains(c.names(), o.Account):
		return f, usage(fmt.Errorf("--account %s: the configuration has %s", forTerminal(o.Account), strings.Join(c.names(), ", ")))
	case o.Room != "" && !slices.Contains([]string{"proxy", "robot", "sender", "receipts"}, o.Room):
		return f, usage(fmt.Errorf("--room %s: it is proxy, robot, sender or receipts", forTerminal(o.Room)))
	}
	for _, n := range o.Names {
		if len(n) < 12 {
			return f, usage(fmt.Errorf("%s: give the 12 characters of a name, or the id of a message", forTerminal(n)))
		}
	}
	if o.Since > 0 {
		f.Since = time.Now().Add(-o.Since)
	}
	return f, nil
}

// open reads the configuration for one command.
func (o DeadLettersOptions) open() (Config, deadletters.Book, deadletters.Filter, error) {
	c, err := loadFor(o.Source, "")
	if err != nil {
		return c, deadletters.Book{}, deadletters.Filter{}, err
	}
	f, err := o.filter(c)
	return c, deadletters.Book{Kafka: c.Kafka, Topics: c.Topics.Names()}, f, err
}

// DeadLettersList shows the newest dead letters, and how many there are by
// account and reason.
func DeadLettersList(ctx context.Context, o DeadLettersOptions, limit int, asJSON bool) error {
	if limit < 0 || limit > 10_000 {
		return usage(fmt.Errorf("--limit %d: use 0 to 10000", limit))
	}
	c, book, f, err := o.open()
	if err != nil {
		return err
	}
	list, err := book.List(ctx, f, limit)
	if err != nil {
		return err
	}
	hash := newEngines(c, nil).hasher
	if asJSON {
		return printDeadJSON(o.Out, list, hash)
	}
	return printDead(o.Out, list, hash)
}

// deadView is a dead letter without anything personal.
type deadView struct {
	Name     string `json:"name"`
	At       string `json:"at"`
	Room     string `json:"room"`
	Account  string `json:"account,omitempty"`
	User     string `json:"user,omitempty"` // keyed hash, as in logs
	Kind     string `json:"kind,omitempty"`
	Message  string `json:"message,omitempty"`
	Place    string `json:"place"`
	Reason   string `json:"reason"`
	Replays  int    `json:"replays,omitempty"`
	Replayed string `json:"replayed,omitempty"`
	By       string `json:"by,omitempty"`
}

func viewOf(l *deadletters.Letter, hash telemetry.Hasher) deadView {
	v := deadView{
		Name: l.Name(), At: l.When().UTC().Format(time.RFC3339), Room: l.Room, Account: l.Account, Kind: l.Kind(),
		Message: l.ID, Place: l.Place(), Reason: l.Reason, Replays: l.Replays, By: l.By,
	}
	if l.OpenID != "" {
		v.User = hash.OpenID(l.OpenID)
	}
	if l.Replays > 0 {
		v.Replayed = l.Replayed.UTC().Format(time.RFC3339)
	}
	return v
}

func printDeadJSON(out io.Writer, list deadletters.List, hash telemetry.Hasher) error {
	view := struct {
		Total   int                 `json:"total"`
		Counts  []deadletters.Count `json:"counts"`
		Letters []deadView          `json:"letters"`
	}{list.Total, list.Counts, []deadView{}}
	for _, l := range list.Letters {
		view.Letters = append(view.Letters, viewOf(l, hash))
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(view)
}

func printDead(out io.Writer, list deadletters.List, hash telemetry.Hasher) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for i, l := range list.Letters {
		if i == 0 {
			fmt.Fprintln(t, "NAME\tDEAD SINCE\tROOM\tACCOUNT\tUSER\tMESSAGE\tRECORD\tREPLAYED\tREASON")
		}
		v := viewOf(l, hash)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Name, v.At, forTerminal(v.Room), orDash(v.Account), orDash(v.User), orDash(v.Message), printable(v.Place, 100), replayedText(v), printable(v.Reason, 120))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, n := range list.Counts {
		if i == 0 {
			fmt.Fprintln(t, "\nLETTERS\tACCOUNT\tROOM\tREASON")
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", n.Letters, orDash(n.Account), orDash(n.Room), printable(n.Reason, 120))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d dead letters, %d shown\n", list.Total, len(list.Letters))
	if list.Strange > 0 {
		fmt.Fprintf(out, "%d records of the topic are not known to this release\n", list.Strange)
	}
	return nil
}

func replayedText(v deadView) string {
	if v.Replays == 0 {
		return "-"
	}
	return fmt.Sprintf("%d, last %s by %s", v.Replays, v.Replayed, forTerminal(v.By))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s, 300)
}

// DeadLettersShow shows one dead letter. What is personal is shown only with
// body.
func DeadLettersShow(ctx context.Context, o DeadLettersOptions, body bool) error {
	c, book, f, err := o.open()
	if err != nil {
		return err
	}
	l, err := book.Find(ctx, o.Names[0], f.Since)
	if errors.Is(err, deadletters.ErrNone) {
		return fmt.Errorf("%s: %w", forTerminal(o.Names[0]), err)
	}
	if err != nil {
		return err
	}
	v := viewOf(l, newEngines(c, nil).hasher)
	t := tabwriter.NewWriter(o.Out, 0, 4, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(t, "%s\t%s\n", name, orDash(value)) }
	line("name", v.Name)
	line("dead since", v.At)
	line("room", v.Room)
	line("reason", v.Reason)
	line("account", v.Account)
	line("user", v.User)
	line("kind", v.Kind)
	line("message", v.Message)
	line("record", v.Place)
	line("bytes", fmt.Sprint(len(l.Value)))
	line("replayed", replayedText(v))
	if body {
		line("openid", l.OpenID)
		line("key", string(l.Key))
		for _, h := range l.Headers {
			line("header "+forTerminal(h.Key), string(h.Value))
		}
	}
	if err := t.Flush(); err != nil || !body {
		return err
	}
	_, err = fmt.Fprintf(o.Out, "\n%s\n", printable(string(l.Value), len(l.Value)))
	return err
}
