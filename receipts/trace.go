package receipts

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/idgen"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// maxReplies bounds the replies whose steps a trace follows.
const maxReplies = 20

// trace is a message and those that belong to the same journey: a callback, its
// replies; a push stands alone.
type trace struct {
	messages []*store.Message
	steps    []traced
}

type traced struct {
	of *store.Message
	store.Step
}

// trace gathers the journey of a message, as far as the caller may see it.
func (r *Room) trace(ctx context.Context, m *store.Message, sees func(*store.Message) bool) (*trace, error) {
	t := &trace{messages: []*store.Message{m}}
	root := m.ID
	if m.Kind == wire.KindReply {
		root = m.CallbackID
	}
	if m.Kind != wire.KindPush && root != "" {
		related, err := r.journey(ctx, root)
		if err != nil {
			return nil, err
		}
		for _, other := range related {
			if same := other.ID == m.ID && other.Variant == m.Variant; !same && other.Account == m.Account && sees(other) {
				t.messages = append(t.messages, other)
			}
		}
	}
	for _, m := range t.messages {
		steps, err := r.store.Steps(ctx, m.ID, m.Variant)
		if err != nil {
			return nil, err
		}
		for _, s := range steps {
			t.steps = append(t.steps, traced{m, s})
		}
	}
	slices.SortStableFunc(t.steps, func(a, b traced) int { return cmp.Compare(a.At, b.At) })
	return t, nil
}

// journey finds a callback, if it has a row, and its replies.
func (r *Room) journey(ctx context.Context, callback string) ([]*store.Message, error) {
	ms, err := r.store.Get(ctx, callback)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, err
	}
	replies, err := r.store.List(ctx, store.Filter{CallbackID: callback}, nil, maxReplies)
	return append(ms, replies...), err
}

// timeline shows the steps to whoever asked for one message.
func (t *trace) timeline(asked *store.Message) []stepView {
	out := make([]stepView, len(t.steps))
	for i, s := range t.steps {
		out[i] = stepViewOf(s.Step)
		if s.of != asked {
			out[i].Message, out[i].Kind = s.of.ID, s.of.Kind
		}
	}
	return out
}

// TraceView is the answer of GET /ops/v1/trace/{id}: a message, what belongs to the
// same journey, and everything that happened, in the order of time. Users are the
// keyed hashes that logs have.
type TraceView struct {
	Messages []TracedMessage `json:"messages"` // the one that was asked for first
	Timeline []stepView      `json:"timeline"`
}

// TracedMessage is a message as operations see it.
type TracedMessage struct {
	view
	User string `json:"user,omitempty"`
}

func (r *Room) serveTrace(w http.ResponseWriter, req *http.Request) {
	v, err := r.viewTrace(req)
	if err == nil {
		api.WriteJSON(w, http.StatusOK, v)
		return
	}
	if k := fault.KindOf(err); k != fault.Invalid && k != fault.NotFound && req.Context().Err() == nil {
		r.d.Log.Warn("a trace cannot be shown", zap.Error(err))
	}
	api.WriteProblem(w, err)
}

func (r *Room) viewTrace(req *http.Request) (*TraceView, error) {
	if _, err := api.ParseParams(req); err != nil {
		return nil, err
	}
	id := req.PathValue("id")
	if _, err := idgen.Parse(id); err != nil {
		return nil, fault.New(fault.Invalid, "find message", "%w", err).WithField("id")
	}
	ctx, cancel := bounded(req.Context())
	defer cancel()
	ms, err := r.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &TraceView{}
	for _, m := range ms { // identities that share an id are shown one after the other
		t, err := r.trace(ctx, m, func(*store.Message) bool { return true })
		if err != nil {
			return nil, err
		}
		for _, m := range t.messages {
			v := TracedMessage{view: viewOf(m), User: r.d.Hasher.OpenID(m.OpenID)}
			v.OpenID = ""
			out.Messages = append(out.Messages, v)
		}
		out.Timeline = append(out.Timeline, t.timeline(m)...)
	}
	return out, nil
}
