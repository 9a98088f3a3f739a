package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
)

// maxBatch is how many pushes one request may hold.
const maxBatch = 1000

// maxBatches is how many are worked at once: each may be megabytes.
const maxBatches = 16

// item is one push of a batch on its way to its answer.
type item struct {
	plan   plan
	body   string // digest, of a keyed one
	hash   string // of the key; "" without one
	row    keyRow
	twin   int // an earlier item with the same key; -1
	id     string
	err    error
	posted bool
	done   bool // accepted before; nothing is left to do
}

// batchAnswer is the body of a 200: one result for each push, in their order.
type batchAnswer struct {
	Accepted int      `json:"accepted"`
	Refused  int      `json:"refused"`
	Results  []result `json:"results"`
}

type result struct {
	ID      string       `json:"id,omitempty"`
	State   string       `json:"state,omitempty"`
	Problem *api.Problem `json:"problem,omitempty"`
}

// BatchHandler serves POST /v1/pushes:batch: up to 1,000 pushes, each accepted or
// refused by itself. What is accepted is durable when the answer comes. A request
// that cannot be read as a batch is refused whole.
func (in *Intake) BatchHandler() http.Handler {
	return in.bounded(in.batches, in.d.Keys.Authorize(api.PushesWrite, http.HandlerFunc(in.serveBatch)))
}

func (in *Intake) serveBatch(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	items, err := in.takeBatch(w, r)
	if err != nil {
		in.met.seen(err, time.Since(start))
		in.refuse(w, err)
		return
	}
	a := batchAnswer{Results: make([]result, len(items))}
	for i := range items {
		it := &items[i]
		in.met.seen(it.err, time.Since(start))
		if it.err != nil {
			if fault.KindOf(it.err) == fault.Internal {
				in.d.Log.Error("push not accepted", zap.Error(it.err))
			}
			p := api.ProblemOf(it.err)
			a.Refused++
			a.Results[i] = result{Problem: &p}
			continue
		}
		a.Accepted++
		a.Results[i] = result{ID: it.id, State: "queued"}
	}
	api.WriteJSON(w, http.StatusOK, a)
}

// takeBatch works a batch; the error is one of the whole.
func (in *Intake) takeBatch(w http.ResponseWriter, r *http.Request) ([]item, error) {
	app, ok := api.AppOf(r.Context())
	if !ok {
		return nil, fault.New(fault.Internal, "accept pushes", "the request carries no app")
	}
	if r.Header.Get("Idempotency-Key") != "" {
		return nil, invalid("idempotency_key", "give each push of a batch its own, as the field idempotency_key")
	}
	raw, err := readBatch(w, r, in.cfg.MaxBatchBody)
	if err != nil {
		return nil, err
	}
	// A caller that goes away must not leave pushes half accepted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), in.cfg.PublishTimeout)
	defer cancel()
	items := make([]item, len(raw))
	now, trace := in.d.Now(), traceParent(r)
	for i := range items {
		it := &items[i]
		it.twin = -1
		it.plan, it.err = in.planOf(raw[i], app, now, trace)
	}
	if in.fitAll(r.Context(), items) {
		w.Header().Set(headerTemplate, "unchecked")
	}
	in.nameAll(ctx, items)
	in.chargeAll(ctx, items)
	in.postAll(ctx, items)
	in.markAll(ctx, items)
	for i := range items {
		if it := &items[i]; it.twin >= 0 && it.err == nil {
			it.id, it.err = items[it.twin].id, items[it.twin].err
		}
	}
	return items, nil
}

// readBatch takes {"pushes": [ … ]} apart without looking into the pushes: one that
// is wrong must not cost the others.
func readBatch(w http.ResponseWriter, r *http.Request, limit int64) ([]json.RawMessage, error) {
	const op = "read batch"
	body, err := api.ReadBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	bad := fault.New(fault.Invalid, op, `send {"pushes": [ … ]} with the pushes as objects`)
	d := json.NewDecoder(bytes.NewReader(body))
	for _, want := range []json.Token{json.Delim('{'), "pushes", json.Delim('[')} {
		if t, err := d.Token(); err != nil || t != want {
			return nil, bad
		}
	}
	var all []json.RawMessage
	for d.More() {
		if len(all) == maxBatch {
			return nil, invalid("pushes", "more than %d pushes: make several batches", maxBatch)
		}
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return nil, fault.New(fault.Invalid, op, "push %d is not well-formed JSON", len(all)).WithField("pushes")
		}
		all = append(all, one)
	}
	for _, want := range []json.Token{json.Delim(']'), json.Delim('}')} {
		if t, err := d.Token(); err != nil || t != want {
			return nil, bad
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, bad
	}
	if len(all) == 0 {
		return nil, invalid("pushes", "there is no push in it")
	}
	return all, nil
}

// planOf reads and checks one push.
func (in *Intake) planOf(raw []byte, app api.App, now time.Time, trace string) (plan, error) {
	var req Request
	if err := named(api.DecodeBytes(raw, &req)); err != nil {
		return plan{}, err
	}
	if err := req.key(""); err != nil {
		return plan{}, err
	}
	req.defaults()
	return in.planFor(&req, app, now, trace)
}

// nameAll gives every push its id. Keys are remembered before anything is
// published, all in one transaction.
func (in *Intake) nameAll(ctx context.Context, items []item) {
	first := map[string]int{} // by the hash of the key
	var rows []*keyRow
	for i := range items {
		it := &items[i]
		if it.err != nil || it.done {
			continue
		}
		if it.plan.req.IdempotencyKey == "" {
			if it.id, it.err = in.d.IDs.New(ctx, it.plan.user); it.err != nil {
				it.err = fault.Wrap(fault.Unavailable, "make an id", it.err)
			}
			continue
		}
		if it.body, it.err = it.plan.req.bodyHash(); it.err != nil {
			continue
		}
		h := keyHash(it.plan)
		it.hash = h.String()
		if before, twice := first[it.hash]; twice {
			if it.twin = before; items[before].body != it.body {
				it.err = errOtherPush
			}
			continue
		}
		first[it.hash] = i
		it.row = keyRow{App: it.plan.app.Name, KeyHash: it.hash, BodyHash: it.body, ID: idgen.Derive(it.plan.user, h), AcceptedAt: it.plan.at}
		rows = append(rows, &it.row)
	}
	err := in.keys.rememberAll(ctx, rows)
	for i := range items {
		it := &items[i]
		if it.err != nil || it.hash == "" || it.twin >= 0 || it.done {
			continue
		}
		switch {
		case err != nil:
			it.err = err
		case it.row.BodyHash != it.body:
			it.err = errOtherPush
		default:
			it.id = it.row.ID
			if it.row.Published {
				in.met.repeats.Inc()
			}
		}
	}
}
