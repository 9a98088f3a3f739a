package binding

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
)

const (
	maxBody = 4 << 10
	// answerWithin bounds a request: a lookup may wait for a place in the gate and
	// for several tries of the back end.
	answerWithin = 20 * time.Second
	maxIdemKey   = 128
)

// Mount adds the public API of bindings to a mux.
//
//	GET    /v1/accounts/{account}/bindings/{openid}      {"account", "openid", "user"}, or 404
//	PUT    /v1/accounts/{account}/bindings/{openid}      {"user": "…"}
//	DELETE /v1/accounts/{account}/bindings/{openid}
//	GET    /v1/accounts/{account}/bindings?user=…        {"openids": […]}
//
// Keys need the scope bindings:read or bindings:write and the account.
func (b *Book) Mount(m *http.ServeMux, keys *api.Keys, log *zap.Logger) {
	const one, all = "/v1/accounts/{account}/bindings/{openid}", "/v1/accounts/{account}/bindings"
	add := func(method, path, scope string, h func(http.ResponseWriter, *http.Request) error) {
		m.Handle(method+" "+path, keys.Authorize(scope, Answer(log, h)))
	}
	add(http.MethodGet, one, api.BindingsRead, b.get)
	add(http.MethodPut, one, api.BindingsWrite, b.put)
	add(http.MethodDelete, one, api.BindingsWrite, b.remove)
	add(http.MethodGet, all, api.BindingsRead, b.list)
	m.Handle(one, api.OnlyMethods(http.MethodGet, http.MethodPut, http.MethodDelete))
	m.Handle(all, api.OnlyMethods(http.MethodGet))
}

// Answer runs a handler for a key that may act for the account in the path, and
// writes the error that it returns before it has written anything.
func Answer(log *zap.Logger, h func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
		defer cancel()
		err := mayUse(r)
		refused := false
		if err == nil {
			err = h(w, r.WithContext(ctx))
			refused = fault.KindOf(err) == fault.Denied
		}
		switch {
		case err == nil:
			return
		case refused:
			// The caller's key was good: it is our credentials that a back end refuses.
			log.Warn("a back end refuses the robot's credentials (status 401 or 403): check its headers and certificate", zap.String("path", r.Pattern), zap.Error(err))
			err = fault.Wrap(fault.Internal, "answer request", err)
		case fault.KindOf(err) == fault.Internal:
			log.Error("request failed", zap.String("path", r.Pattern), zap.Error(err))
		}
		api.WriteProblem(w, err)
	})
}

func mayUse(r *http.Request) error {
	app, ok := api.AppOf(r.Context())
	switch account := r.PathValue("account"); {
	case !ok:
		return fault.New(fault.Internal, "answer request", "no app in the request")
	case !app.May(account):
		return fault.New(fault.Denied, "answer request", "the key is not for the account %.60q", account).WithField("account")
	}
	return nil
}

// Binding is one follower and the user that he is.
type Binding struct {
	Account string `json:"account"`
	OpenID  string `json:"openid"`
	User    string `json:"user"`
}

func (b *Book) get(w http.ResponseWriter, r *http.Request) error {
	if _, err := api.ParseParams(r); err != nil {
		return err
	}
	account, openid := r.PathValue("account"), r.PathValue("openid")
	user, err := b.Lookup(r.Context(), account, openid)
	if err != nil {
		return err
	}
	if user == "" {
		return fault.New(fault.NotFound, "look binding up", "the follower is not bound to a user").WithField("openid")
	}
	api.WriteJSON(w, http.StatusOK, Binding{account, openid, user})
	return nil
}

func (b *Book) put(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		User string `json:"user"`
	}
	if err := api.Decode(w, r, maxBody, &body); err != nil {
		return err
	}
	idem, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	account, openid := r.PathValue("account"), r.PathValue("openid")
	if err := b.Bind(r.Context(), account, openid, body.User, idem); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, Binding{account, openid, body.User})
	return nil
}

func (b *Book) remove(w http.ResponseWriter, r *http.Request) error {
	idem, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	if err := b.Unbind(r.Context(), r.PathValue("account"), r.PathValue("openid"), idem); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (b *Book) list(w http.ResponseWriter, r *http.Request) error {
	p, err := api.ParseParams(r, "user")
	if err != nil {
		return err
	}
	if p.Get("user") == "" {
		return fault.New(fault.Invalid, "list bindings", "name the user: ?user=…").WithField("user")
	}
	openids, err := b.Followers(r.Context(), r.PathValue("account"), p.Get("user"))
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct {
		Account string   `json:"account"`
		User    string   `json:"user"`
		OpenIDs []string `json:"openids"`
	}{r.PathValue("account"), p.Get("user"), openids})
	return nil
}

// idempotencyKey is handed through to the authority; a write without one is still
// safe to repeat, since it says what is to be and not what to change.
func idempotencyKey(r *http.Request) (string, error) {
	k := r.Header.Get("Idempotency-Key")
	if len(k) > maxIdemKey {
		return "", fault.New(fault.Invalid, "read request", "Idempotency-Key has %d bytes: use at most %d", len(k), maxIdemKey)
	}
	for _, c := range []byte(k) {
		if c < 0x21 || c > 0x7e {
			return "", fault.New(fault.Invalid, "read request", "Idempotency-Key must be printable ASCII without blanks")
		}
	}
	return k, nil
}
