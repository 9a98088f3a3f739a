package api

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"tidegate/pkg/fault"
)

// Scopes of keys. AllApps lets a key see and act on messages of every app;
// without it an app meets only its own.
const (
	PushesWrite    = "pushes:write"
	MessagesRead   = "messages:read"
	MessagesResend = "messages:resend"
	ReportsRead    = "reports:read"
	AllApps        = "apps:all"
	BindingsRead   = "bindings:read"  // which business user a follower is
	BindingsWrite  = "bindings:write" // bind and unbind
	DataErase      = "data:erase"     // erase what is kept of a follower
	TokensRead     = "tokens:read"    // get accounts' access tokens, to call WeChat itself
	OpsRead        = "ops:read"
	OpsWrite       = "ops:write"
)

// AllAccounts, in App.Accounts, stands for every account.
const AllAccounts = "*"

// Scopes lists every scope that a key may have.
func Scopes() []string {
	return []string{PushesWrite, MessagesRead, MessagesResend, ReportsRead, AllApps, BindingsRead, BindingsWrite, DataErase, TokensRead, OpsRead, OpsWrite}
}

// DefaultScopes is what a business system needs: push, and look after its own.
func DefaultScopes() []string {
	return []string{PushesWrite, MessagesRead, MessagesResend, ReportsRead}
}

// App is one key of an app. An app may have several keys at once, so that a
// key can be replaced without a pause.
type App struct {
	Name     string   `json:"name"`
	KeyID    string   `json:"key_id"`
	Scopes   []string `json:"scopes"`
	Accounts []string `json:"accounts"`
	// Templates are the ids that the key may push with; empty is every template, and
	// messages without one.
	Templates []string `json:"templates,omitempty"`
	// Developer is who answers for the app: limits may hold for all apps of one.
	Developer string    `json:"developer,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Has reports whether the key carries a scope.
func (a App) Has(scope string) bool { return slices.Contains(a.Scopes, scope) }

// May reports whether the key may act for an account.
func (a App) May(account string) bool {
	return slices.Contains(a.Accounts, AllAccounts) || slices.Contains(a.Accounts, account)
}

// MayUse reports whether the key may push with a template; "" is a message that
// has none.
func (a App) MayUse(template string) bool {
	return len(a.Templates) == 0 || slices.Contains(a.Templates, template)
}

var (
	templateID  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	appName     = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	accountName = regexp.MustCompile(`^(\*|[a-z0-9][a-z0-9-]{0,39})$`)
)

// check refuses names that would not survive a URL, a log line or a list, and
// scopes that do not exist: a misspelt scope must not look granted.
func (a App) check() error {
	const op = "add app"
	if !appName.MatchString(a.Name) {
		return fault.New(fault.Invalid, op, "name %q: use 1 to 64 of a-z, 0-9, dot, _ and -, beginning with a letter or digit", a.Name).WithField("name")
	}
	if len(a.Scopes) == 0 || len(a.Accounts) == 0 {
		return fault.New(fault.Invalid, op, "give at least one scope and one account (or %q)", AllAccounts).WithField("scopes")
	}
	for _, s := range a.Scopes {
		if !slices.Contains(Scopes(), s) {
			return fault.New(fault.Invalid, op, "unknown scope %q: use some of %s", s, strings.Join(Scopes(), ", ")).WithField("scopes")
		}
	}
	for _, n := range a.Accounts {
		if !accountName.MatchString(n) {
			return fault.New(fault.Invalid, op, "account %q: use an account's name or %q", n, AllAccounts).WithField("accounts")
		}
	}
	for _, t := range a.Templates {
		if !templateID.MatchString(t) {
			return fault.New(fault.Invalid, op, "template %.80q: use a template's id", t).WithField("templates")
		}
	}
	if a.Developer != "" && !appName.MatchString(a.Developer) {
		return fault.New(fault.Invalid, op, "developer %.80q: use 1 to 64 of a-z, 0-9, dot, _ and -", a.Developer).WithField("developer")
	}
	return nil
}

type appKey struct{}

// WithApp puts the app into a request's context, as Authorize does.
func WithApp(ctx context.Context, a App) context.Context { return context.WithValue(ctx, appKey{}, a) }

// AppOf finds the app that a request comes from; ok is false where Authorize
// did not run.
func AppOf(ctx context.Context) (a App, ok bool) {
	a, ok = ctx.Value(appKey{}).(App)
	return a, ok
}
