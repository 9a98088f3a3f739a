package control

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"tidegate/pkg/fault"
)

// KindLine is the kind of rows by which an operator chooses the line that an
// account's calls go by. The subject is lines, for every account that has no choice
// of its own, or lines.<account>.
const KindLine = "line"

// allAccounts is the subject for every account.
const allAccounts = "lines"

// LineChange is what an operator asks for.
type LineChange struct {
	Account   string // empty: every account that has no choice of its own
	Line      string // empty takes the choice back
	By        string
	Reason    string
	ExpiresIn time.Duration // 0: until somebody takes it back
}

// LineChoice is a choice in force.
type LineChoice struct {
	Account string
	Line    string
	Row
}

type lineValue struct {
	Line string `json:"line"`
}

// SetLine makes a choice on every node, or takes it back. Kinds of errors are
// those of Store.Apply, and Final where this process has no database. As with
// orders, nodes that hold a newer version than the database do not keep anybody
// from switching.
func (p *Panel) SetLine(ctx context.Context, c LineChange) (Entry, error) {
	const op = "choose line"
	change := Change{Kind: KindLine, Subject: allAccounts, By: c.By, Reason: c.Reason}
	if c.Account != "" {
		change.Subject += "." + c.Account
	}
	if c.Line != "" {
		text, err := json.Marshal(lineValue{c.Line})
		if err != nil {
			return Entry{}, fault.Wrap(fault.Internal, op, err)
		}
		change.Value = text
		if c.ExpiresIn != 0 {
			change.ExpiresAt = p.o.Now().Add(c.ExpiresIn)
		}
	}
	return p.apply(ctx, op, change)
}

// WatchLines has fn called with the choices in force: now, and after each change.
// Call it before Run; fn must not block.
func (p *Panel) WatchLines(fn func([]LineChoice)) {
	p.view.Watch(func(_ int64, rows []Row) { fn(linesIn(rows)) })
	_, rows := p.view.Rows(KindLine)
	fn(linesIn(rows))
}

// linesIn reads the choices; what it cannot read is none.
func linesIn(rows []Row) []LineChoice {
	var out []LineChoice
	for _, r := range rows {
		var v lineValue
		rest, ours := strings.CutPrefix(r.Subject, allAccounts)
		if r.Kind != KindLine || !ours || json.Unmarshal(r.Value, &v) != nil || v.Line == "" {
			continue
		}
		out = append(out, LineChoice{Account: strings.TrimPrefix(rest, "."), Line: v.Line, Row: r})
	}
	return out
}
