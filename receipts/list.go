package receipts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

const (
	pageDefault   = 50
	cursorPurpose = "cursor"
	readOp        = "read query"
)

var listParams = []string{"id", "openid", "app", "account", "reference", "template_id", "callback_id", "resend_of", "state", "kind",
	"errcode", "possible_duplicate", "from", "to", "limit", "cursor", "format"}

// cursor is a place in the list of one selection.
type cursor struct {
	Mark      store.Mark `json:"m"`
	Selection string     `json:"s"`
}

// list answers GET /v1/messages.
func (r *Room) list(w http.ResponseWriter, req *http.Request, app api.App) error {
	p, err := api.ParseParams(req, listParams...)
	if err != nil {
		return err
	}
	f, err := filterOf(p)
	if err != nil {
		return err
	}
	if err := visible(&f, app, p.Get("account")); err != nil {
		return err
	}
	if format := p.Get("format"); format != "" && format != "json" {
		return r.export(w, req, p, f, format)
	}
	limit, err := number(p, "limit", pageDefault, 1, store.MaxPage)
	if err != nil {
		return err
	}
	after, err := r.openCursor(p.Get("cursor"), f)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	ms, err := r.store.List(ctx, f, after, limit)
	if err != nil {
		return err
	}
	out := struct {
		Messages []view `json:"messages"`
		Next     string `json:"next,omitempty"`
	}{Messages: make([]view, len(ms))}
	for i, m := range ms {
		out.Messages[i] = viewOf(m)
	}
	if len(ms) == limit {
		c := cursor{Mark: ms[len(ms)-1].Mark(), Selection: fingerprint(f)}
		if out.Next, err = r.sealer.Seal(cursorPurpose, c, 0); err != nil {
			return err
		}
	}
	api.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (r *Room) openCursor(text string, f store.Filter) (*store.Mark, error) {
	if text == "" {
		return nil, nil
	}
	var c cursor
	if err := r.sealer.Open(cursorPurpose, text, &c); err != nil {
		return nil, withField(err, "cursor")
	}
	if c.Selection != fingerprint(f) {
		return nil, fault.New(fault.Invalid, readOp, "the cursor belongs to other filters: send the filters of the first page with it").WithField("cursor")
	}
	return &c.Mark, nil
}

func fingerprint(f store.Filter) string {
	text, _ := json.Marshal(f) // strings, numbers and times: it cannot fail
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:12])
}

// get answers GET /v1/messages/{id}. A message that the key may not see is not
// there for it.
func (r *Room) get(w http.ResponseWriter, req *http.Request, app api.App) error {
	if _, err := api.ParseParams(req); err != nil {
		return err
	}
	id := req.PathValue("id")
	if _, err := idgen.Parse(id); err != nil {
		return fault.New(fault.Invalid, "find message", "%w", err).WithField("id")
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	ms, err := r.store.Get(ctx, id)
	if err != nil {
		return err
	}
	var views []view
	for _, m := range ms {
		if !sees(app, m) {
			continue
		}
		tr, err := r.trace(ctx, m, func(m *store.Message) bool { return sees(app, m) })
		if err != nil {
			return err
		}
		v := viewOf(m)
		v.Timeline = tr.timeline(m)
		views = append(views, v)
	}
	if len(views) == 0 {
		return fault.New(fault.NotFound, "find message", "no message has the id %q", id)
	}
	views[0].Twins = views[1:]
	api.WriteJSON(w, http.StatusOK, views[0])
	return nil
}

// filterOf reads the filters of a query.
func filterOf(p api.Params) (store.Filter, error) {
	f := store.Filter{
		OpenID: p.Get("openid"), App: p.Get("app"), Reference: p.Get("reference"), Template: p.Get("template_id"),
		CallbackID: p.Get("callback_id"), ResendOf: p.Get("resend_of"),
	}
	if id := p.Get("id"); id != "" {
		f.IDs = []string{id}
	}
	var err error
	if f.States, err = states(list(p.Get("state")), "state"); err != nil {
		return f, err
	}
	for _, k := range list(p.Get("kind")) {
		switch wire.Kind(k) {
		case wire.KindCallback, wire.KindReply, wire.KindPush:
			f.Kinds = append(f.Kinds, wire.Kind(k))
		default:
			return f, fault.New(fault.Invalid, readOp, "kind %q: use callback, reply or push", k).WithField("kind")
		}
	}
	if f.ErrCode, err = number(p, "errcode", 0, -1<<31, 1<<31-1); err != nil {
		return f, err
	}
	switch v := p.Get("possible_duplicate"); v {
	case "", "false":
	case "true":
		f.Duplicate = true
	default:
		return f, fault.New(fault.Invalid, readOp, "possible_duplicate is %q: use true or leave it out", v).WithField("possible_duplicate")
	}
	if f.From, err = moment(p.Get("from"), "from"); err != nil {
		return f, err
	}
	f.To, err = moment(p.Get("to"), "to")
	return f, err
}

// list cuts "a,b" into its parts.
func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func states(names []string, field string) ([]wire.State, error) {
	var out []wire.State
	for _, n := range names {
		if _, ok := wire.State(n).Info(); !ok {
			return nil, fault.New(fault.Invalid, readOp, "unknown state %q: use some of %v", n, stateNames(func(wire.StateInfo) bool { return true })).WithField(field)
		}
		out = append(out, wire.State(n))
	}
	return out, nil
}

func stateNames(keep func(wire.StateInfo) bool) []string {
	var out []string
	for _, s := range wire.States() {
		if keep(s) {
			out = append(out, string(s.State))
		}
	}
	return out
}

func number(p api.Params, name string, otherwise, low, high int) (int, error) {
	text := p.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, fault.New(fault.Invalid, readOp, "%s is %q: use a whole number from %d to %d", name, text, low, high).WithField(name)
	}
	return n, nil
}

func moment(text, field string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 2000 || t.Year() > 2200 {
		return time.Time{}, fault.New(fault.Invalid, readOp, "%s is %q: write a time like 2026-03-01T08:00:00+08:00 (and + as %%2B in a URL)", field, text).WithField(field)
	}
	return t.UTC(), nil
}

// withField names the input that a fault of a lower layer is about.
func withField(err error, field string) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.KindOf(err), readOp, "%s", api.ProblemOf(err).Detail).WithField(field)
}
