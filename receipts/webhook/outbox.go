package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"tidegate/pkg/sqldb"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// rowsAtOnce bounds the rows of one statement.
const rowsAtOnce = 64

// Changed is the store's hook: it writes the events of a batch into the outbox,
// within the transaction of the rows.
func (h *Hub) Changed(ctx context.Context, tx *sqldb.Tx, changes []store.Change) error {
	mine := h.concerning(changes)
	if len(mine) == 0 {
		return nil
	}
	now := h.d.Now().UnixMilli()
	named, err := h.targets(ctx, tx, mine, now)
	if err != nil {
		return err
	}
	var events []event
	for _, c := range mine {
		e, err := h.eventsOf(c, named, now)
		if err != nil {
			return err
		}
		events = append(events, e...)
	}
	if err := h.insert(ctx, tx, events, now); err != nil {
		return err
	}
	for _, e := range events {
		h.endpoints[e.endpoint].wake()
	}
	return nil
}

// concerning keeps the pushes of apps that have webhooks.
func (h *Hub) concerning(changes []store.Change) []store.Change {
	var out []store.Change
	for _, c := range changes {
		if c.Now.Kind == wire.KindPush && h.apps[c.Now.App] != nil {
			out = append(out, c)
		}
	}
	return out
}

// key names a message.
type key struct {
	id      string
	variant int
}

func keyOf(m *store.Message) key { return key{m.ID, m.Variant} }

// targets gives the addresses that pushes named themselves: those of letters
// that come with this batch are kept, the others are looked up.
func (h *Hub) targets(ctx context.Context, tx *sqldb.Tx, changes []store.Change, now int64) (map[key]string, error) {
	named := map[key]string{}
	var args []any
	var ask []string
	for i := range changes {
		c := &changes[i]
		a := h.apps[c.Now.App]
		if len(a.hosts) == 0 {
			continue
		}
		raw := callbackURL(c.Letter)
		switch {
		case raw == "" && len(c.Letter) == 0:
			ask = append(ask, c.Now.ID)
		case raw != "" && h.cfg.CheckCallback(c.Now.App, raw) != nil:
			h.met.events.WithLabelValues(a.name, "not_allowed").Inc()
		case raw != "":
			named[keyOf(&c.Now)] = raw
			args = append(args, c.Now.ID, c.Now.Variant, c.Now.Account, c.Now.OpenID, raw, now)
		}
	}
	const width = 6
	for len(args) > 0 {
		n := min(len(args), rowsAtOnce*width)
		if _, err := tx.Exec(ctx, "INSERT INTO webhook_targets (message, variant, account, openid, url, created_at) VALUES "+
			places(n/width, width)+" ON CONFLICT (message, variant) DO NOTHING", args[:n]...); err != nil {
			return nil, err
		}
		args = args[n:]
	}
	return named, lookUp(ctx, tx, ask, named)
}

func lookUp(ctx context.Context, tx *sqldb.Tx, ids []string, into map[key]string) error {
	for len(ids) > 0 {
		n := min(len(ids), rowsAtOnce)
		args := make([]any, n)
		for i, id := range ids[:n] {
			args[i] = id
		}
		if err := readTargets(ctx, tx, places(1, n), args, into); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

func readTargets(ctx context.Context, tx *sqldb.Tx, in string, args []any, into map[key]string) error {
	rows, err := tx.Query(ctx, "SELECT message, variant, url FROM webhook_targets WHERE message IN "+in, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var k key
		var raw string
		if err := rows.Scan(&k.id, &k.variant, &raw); err != nil {
			return err
		}
		into[k] = raw
	}
	return rows.Err()
}

// callbackURL reads the address out of a push's letter.
func callbackURL(letter []byte) string {
	if !bytes.Contains(letter, []byte(`"callback_url"`)) {
		return ""
	}
	var p struct {
		CallbackURL string `json:"callback_url"`
	}
	if json.Unmarshal(letter, &p) != nil {
		return "" // the store keeps it as it is; it was readable a moment ago
	}
	return p.CallbackURL
}

// eventsOf gives the events of one message. Where the letter with the address
// comes behind the state, the state is told to the address then; it may have
// been told to the app as well.
func (h *Hub) eventsOf(c store.Change, named map[key]string, now int64) ([]event, error) {
	a := h.apps[c.Now.App]
	raw := named[keyOf(&c.Now)]
	endpoint := a.name
	if raw != "" {
		u, err := url.Parse(raw)
		if err != nil || !a.hosts[hostOf(u)] {
			raw = "" // the configuration has changed since
		} else {
			endpoint = a.name + "@" + hostOf(u)
		}
	}
	if raw == "" && a.url == "" {
		return nil, nil
	}
	moves := c.Moves
	if raw != "" && len(c.Letter) > 0 && (len(moves) == 0 || moves[len(moves)-1].State != c.Now.State) {
		moves = append(moves[:len(moves):len(moves)], c.Now)
	}
	var out []event
	for _, m := range moves {
		if !a.events[m.State] {
			continue
		}
		// Facts that a later piece of the batch filled in are known by now.
		m.App, m.OpenID, m.Reference, m.Template, m.Lane = c.Now.App, c.Now.OpenID, c.Now.Reference, c.Now.Template, c.Now.Lane
		e, err := newEvent(endpoint, raw, m, now)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (h *Hub) insert(ctx context.Context, tx *sqldb.Tx, events []event, now int64) error {
	const columns, width = "id, endpoint, account, openid, message, variant, type, url, body, state, created_at, due_at, give_up_at, attempts, claim, claimed_until, status, error, settled_at", 19
	for len(events) > 0 {
		n := min(len(events), rowsAtOnce)
		var args []any
		for _, e := range events[:n] {
			m := e.message
			args = append(args, e.id, e.endpoint, m.Account, m.OpenID, m.ID, m.Variant, typeOf(m), e.url, string(e.body), pending,
				now, now, now+h.cfg.GiveUpAfter.Milliseconds(), 0, "", 0, 0, "", 0)
			h.met.events.WithLabelValues(m.App, "recorded").Inc()
		}
		if _, err := tx.Exec(ctx, "INSERT INTO webhook_events ("+columns+") VALUES "+places(n, width)+" ON CONFLICT (id) DO NOTHING", args...); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// places writes n rows of width parameters.
func places(n, width int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for k := range width {
			if k > 0 {
				b.WriteString(", ")
			}
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(i*width + k + 1))
		}
		b.WriteByte(')')
	}
	return b.String()
}
