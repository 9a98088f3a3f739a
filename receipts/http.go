package receipts

import (
	"context"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
	"tidegate/receipts/store"
)

// queryTimeout bounds one question to the database.
const queryTimeout = 10 * time.Second

// routes puts the API together. Every route asks for its scope; what an app
// then sees is only what its key may see (visible).
func (r *Room) routes() http.Handler {
	m := http.NewServeMux()
	add := func(method, path, scope string, h handler) {
		m.Handle(method+" "+path, r.d.Keys.Authorize(scope, r.answer(h)))
		m.Handle(path, api.OnlyMethods(method))
	}
	add(http.MethodGet, "/v1/messages", api.MessagesRead, r.list)
	add(http.MethodGet, "/v1/messages/{id}", api.MessagesRead, r.get)
	add(http.MethodPost, "/v1/messages:resend", api.MessagesResend, r.resend)
	add(http.MethodGet, "/v1/resends", api.MessagesResend, r.apiResends)
	add(http.MethodGet, "/v1/resends/{request}", api.MessagesResend, r.apiResend)
	add(http.MethodPost, "/v1/resends/{request}/cancel", api.MessagesResend, r.apiCancel)
	add(http.MethodGet, "/v1/reports/failures", api.ReportsRead, r.failures)
	m.HandleFunc("/", api.NotFound)
	return m
}

// handler answers a request of an app, or returns the error to answer with
// before anything is written.
type handler func(w http.ResponseWriter, req *http.Request, app api.App) error

func (r *Room) answer(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		app, ok := api.AppOf(req.Context())
		if !ok {
			api.WriteProblem(w, fault.New(fault.Internal, "answer request", "no app in the request"))
			return
		}
		err := h(w, req, app)
		if err == nil {
			return
		}
		if k := fault.KindOf(err); k == fault.Internal && req.Context().Err() == nil {
			r.d.Log.Error("request failed", zap.String("path", req.Pattern), zap.String("app", app.Name), zap.Error(err))
		}
		api.WriteProblem(w, err)
	})
}

// visible narrows a filter to what an app may see: its own messages in its own
// accounts. Only a key with the scope for all apps sees more, callbacks and
// replies among it, which belong to no app. account is what the caller asked
// for, or "".
func visible(f *store.Filter, app api.App, account string) error {
	const op = "select messages"
	if !app.Has(api.AllApps) {
		if f.App != "" && f.App != app.Name {
			return fault.New(fault.Denied, op, "messages of the app %s need a key with the scope %s", f.App, api.AllApps).WithField("app")
		}
		f.App = app.Name
	}
	switch {
	case account != "" && !wire.ValidAccount(account):
		return fault.New(fault.Invalid, op, "%q is no account's name", account).WithField("account")
	case account != "" && !app.May(account):
		return fault.New(fault.Denied, op, "the key is not for the account %s", account).WithField("account")
	case account != "":
		f.Accounts = []string{account}
	case !slices.Contains(app.Accounts, api.AllAccounts):
		f.Accounts = app.Accounts
	}
	return nil
}

// sees reports whether an app may see one message.
func sees(app api.App, m *store.Message) bool {
	return app.May(m.Account) && (app.Has(api.AllApps) || m.App == app.Name)
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, queryTimeout)
}
