package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"tidegate/pkg/fault"
)

// Kinds of rows whose value is an Order and whose subject is the name that the
// operator gave it.
const (
	KindPause  = "pause"  // what it covers waits until the order is taken back
	KindCancel = "cancel" // what it covers is never sent
)

// Order says which messages a pause or a cancel covers. All conditions that are
// set must hold.
type Order struct {
	Account  string `json:"account,omitempty"`
	App      string `json:"app,omitempty"`
	Template string `json:"template,omitempty"`
	Lane     string `json:"lane,omitempty"`
	// AcceptedBefore covers only what was accepted before this moment. A cancel
	// always has it: what comes later is another matter.
	AcceptedBefore time.Time `json:"accepted_before,omitzero"`
	// All must be set where nothing else is, so that nobody stops everything by
	// leaving a field out.
	All bool `json:"all,omitempty"`
	// Replies covers replies to followers as well; without it an order is about
	// pushes. With it and an account, or All, it is the kill switch.
	Replies bool `json:"replies,omitempty"`
}

// Message is what an order looks at.
type Message struct {
	Account, App, Template, Lane string
	AcceptedAt                   time.Time
	Reply                        bool
}

// Covers tells whether the order is about the message.
func (o Order) Covers(m Message) bool {
	switch {
	case m.Reply && !o.Replies,
		o.Account != "" && o.Account != m.Account,
		o.App != "" && o.App != m.App,
		o.Template != "" && o.Template != m.Template,
		o.Lane != "" && o.Lane != m.Lane,
		!o.AcceptedBefore.IsZero() && !m.AcceptedAt.Before(o.AcceptedBefore):
		return false
	}
	return true
}

var wordForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}$`)

// Validate names the first condition that cannot be meant.
func (o Order) Validate() error {
	const op = "order"
	bad := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, op, field+": %w", fmt.Errorf(format, args...)).WithField(field)
	}
	for _, f := range []struct{ field, value string }{{"account", o.Account}, {"app", o.App}, {"template", o.Template}, {"lane", o.Lane}} {
		if f.value != "" && !wordForm.MatchString(f.value) {
			return bad(f.field, "%.60q is none", f.value)
		}
	}
	narrow := o.Account != "" || o.App != "" || o.Template != "" || o.Lane != ""
	switch {
	case o.Lane != "" && o.Lane != "realtime" && o.Lane != "bulk":
		return bad("lane", "%q: use realtime or bulk; replies are covered with replies", o.Lane)
	case o.Replies && (o.App != "" || o.Template != "" || o.Lane != ""):
		return bad("replies", "replies have no app, template or lane: give an account, or all, alone")
	case !o.AcceptedBefore.IsZero() && (o.AcceptedBefore.Year() < 2000 || o.AcceptedBefore.Year() > 9999):
		return bad("accepted_before", "the year %d is not meant", o.AcceptedBefore.Year())
	case o.All && narrow:
		return bad("all", "it covers everything: leave out account, app, template and lane, or leave out all")
	case !o.All && !narrow:
		return bad("account", "say what it covers: account, app, template or lane; for everything set all")
	}
	return nil
}

// orderOf reads the value of a row. A condition that this release does not know
// would make the order wider than it was meant, so such an order is not followed
// as it stands: see Orders.
func orderOf(value json.RawMessage) (Order, error) {
	var o Order
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("the order is of a release that knows more: %w", err)
	}
	return o, o.Validate()
}

// String is for people.
func (o Order) String() string {
	b := ""
	add := func(name, value string) {
		if value != "" {
			b += name + " " + value + ", "
		}
	}
	add("account", o.Account)
	add("app", o.App)
	add("template", o.Template)
	add("lane", o.Lane)
	if o.All {
		b += "all accounts, "
	}
	if !o.AcceptedBefore.IsZero() {
		add("accepted before", o.AcceptedBefore.UTC().Format(time.RFC3339))
	}
	if o.Replies {
		return b + "pushes and replies"
	}
	return b + "pushes"
}
