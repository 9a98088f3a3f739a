package binding

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
	"tidegate/pkg/guard"
	"tidegate/pkg/redis"
	"tidegate/pkg/wire"
	"tidegate/robot/backend"
)

// Caller asks the authority (backend.Client).
type Caller interface {
	Call(ctx context.Context, r backend.Request) (answer any, err error)
}

// Book answers who is bound to whom. It is safe for concurrent use; Close it.
type Book struct {
	cfg   Config
	call  Caller
	guard *guard.Guard
}

// Bounds of what comes from outside.
const (
	maxUser    = 128  // bytes of a business user's id
	maxOpenIDs = 1000 // followers of one user
)

// New makes a book over the back end of the configuration.
func New(cfg Config, call Caller, c *redis.Client, log *zap.Logger, reg prometheus.Registerer) (*Book, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fault.New(fault.Invalid, "open bindings", "robot.binding: %w", err)
	}
	g, err := guard.New(cfg.guard(), guard.Deps{Redis: c, Log: log, Registerer: reg})
	if err != nil {
		return nil, err
	}
	return &Book{cfg: cfg, call: call, guard: g}, nil
}

// Guard is what stands in front of the authority, for its view and numbers.
func (b *Book) Guard() *guard.Guard { return b.guard }

// Close ends what the book does by itself.
func (b *Book) Close() { b.guard.Close() }

// kept is what is kept of an answer.
type kept struct {
	User string `json:"user"` // "" if the follower is not bound
}

// Lookup gives the business user of a follower, "" if there is none.
func (b *Book) Lookup(ctx context.Context, account, openid string) (user string, err error) {
	if err := checkFollower(account, openid); err != nil {
		return "", err
	}
	r, err := b.guard.Personal(ctx, key(account, openid), func(ctx context.Context) ([]byte, error) {
		user, err := b.ask(ctx, account, openid)
		if err != nil {
			return nil, err
		}
		return json.Marshal(kept{user})
	})
	if err != nil {
		return "", err
	}
	var k kept
	if err := json.Unmarshal(r.Value, &k); err != nil {
		return "", fault.New(fault.Internal, "look binding up", "what was kept cannot be read")
	}
	return k.User, nil
}

// ask asks the authority. A follower that it does not know is not bound; every
// other failure is one.
func (b *Book) ask(ctx context.Context, account, openid string) (string, error) {
	const op = "look binding up"
	answer, err := b.call.Call(ctx, backend.Request{Method: http.MethodGet, Path: b.path(account, openid)})
	if fault.KindOf(err) == fault.NotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	fields, ok := answer.(map[string]any)
	if !ok {
		return "", fault.New(fault.Final, op, "the back end %s answers no JSON object: it should be {\"user\": \"…\"}, or status 404", b.cfg.Backend)
	}
	var user string
	switch u := fields["user"].(type) {
	case string:
		user = u
	case int64:
		user = strconv.FormatInt(u, 10)
	case nil:
		return "", nil
	}
	if checkUser(user) != nil {
		return "", fault.New(fault.Final, op, "the back end %s gives no usable user: a text of 1 to %d printable bytes, or null", b.cfg.Backend, maxUser)
	}
	return user, nil
}

// Bind ties a follower to a business user, if the authority agrees.
func (b *Book) Bind(ctx context.Context, account, openid, user, idempotency string) error {
	if err := checkUser(user); err != nil {
		return err
	}
	body, err := json.Marshal(kept{user})
	if err != nil {
		return fault.Wrap(fault.Internal, "bind", err)
	}
	return b.write(ctx, account, openid, backend.Request{Method: http.MethodPut, Body: body, Key: idempotency})
}

// Unbind unties a follower. One who is not bound is untied already.
func (b *Book) Unbind(ctx context.Context, account, openid, idempotency string) error {
	return b.write(ctx, account, openid, backend.Request{Method: http.MethodDelete, Key: idempotency})
}

// write changes a binding at the authority and voids what is known of it, however
// the write ended: it may have been done. When it was and other robots could not be
// told, the error is api.ErrInPart, of kind Ambiguous.
func (b *Book) write(ctx context.Context, account, openid string, r backend.Request) error {
	if err := checkFollower(account, openid); err != nil {
		return err
	}
	r.Path = b.path(account, openid)
	_, err := b.guard.Through(ctx, func(ctx context.Context) error {
		_, err := b.call.Call(ctx, r)
		if r.Method == http.MethodDelete && fault.KindOf(err) == fault.NotFound {
			return nil // it is as it should be; others may still know it otherwise
		}
		return err
	})
	void := b.Forget(context.WithoutCancel(ctx), account, openid)
	switch {
	case err != nil:
		return err
	case errors.Is(void, guard.ErrOwed):
		return fault.New(fault.Ambiguous, "change binding",
			"the bank's system has changed the binding, but other robots could not be told and may use the old one for up to %s: ask again (%w)", b.cfg.TTL, api.ErrInPart)
	}
	return void
}

// Forget voids what is kept of a follower's binding; the binding stays. The error
// guard.ErrOwed says that other robots could not be told: what is kept may be used,
// and lie in Redis, for TTL.
func (b *Book) Forget(ctx context.Context, account, openid string) error {
	err := b.guard.Invalidate(ctx, key(account, openid))
	if b.cfg.Key == "" && errors.Is(err, guard.ErrOwed) {
		return nil // without a key no robot keeps anything
	}
	return err
}

// Followers gives the followers of an account that are bound to a user. The
// authority is asked each time.
func (b *Book) Followers(ctx context.Context, account, user string) (openids []string, err error) {
	const op = "look followers up"
	if !wire.ValidAccount(account) {
		return nil, fault.New(fault.Invalid, op, "%.60q is no account's name", account).WithField("account")
	}
	if err := checkUser(user); err != nil {
		return nil, err
	}
	var answer any
	_, err = b.guard.Through(ctx, func(ctx context.Context) (err error) {
		answer, err = b.call.Call(ctx, backend.Request{Method: http.MethodGet, Path: fill(b.cfg.UserPath, account, "{user}", user)})
		return err
	})
	if fault.KindOf(err) == fault.NotFound {
		return []string{}, nil
	}
	if err != nil {
		return nil, err
	}
	fields, _ := answer.(map[string]any)
	list, ok := fields["openids"].([]any)
	if !ok || len(list) > maxOpenIDs {
		return nil, fault.New(fault.Final, op, "the back end %s should answer {\"openids\": [\"…\"]} with at most %d of them, or status 404", b.cfg.Backend, maxOpenIDs)
	}
	openids = make([]string, 0, len(list))
	for _, e := range list {
		s, _ := e.(string)
		if !wire.ValidOpenID(s) {
			return nil, fault.New(fault.Final, op, "the back end %s names a follower that is no openid", b.cfg.Backend)
		}
		openids = append(openids, s)
	}
	return openids, nil
}

func (b *Book) path(account, openid string) string {
	return fill(b.cfg.Path, account, "{openid}", openid)
}

func key(account, openid string) string { return account + "/" + openid }

func checkFollower(account, openid string) error {
	if !wire.ValidAccount(account) {
		return fault.New(fault.Invalid, "check account", "%.60q is no account's name", account).WithField("account")
	}
	if !wire.ValidOpenID(openid) {
		return fault.New(fault.Invalid, "check openid", "this is no openid").WithField("openid")
	}
	return nil
}

// checkUser refuses what would not survive a path, a log or a template.
func checkUser(user string) error {
	if user == "" || len(user) > maxUser || user == "." || user == ".." || !utf8.ValidString(user) ||
		strings.ContainsFunc(user, func(r rune) bool { return unicode.IsControl(r) || r == '/' || r == '\\' }) {
		return fault.New(fault.Invalid, "check user", "the user must be a text of 1 to %d bytes without slashes and control characters", maxUser).WithField("user")
	}
	return nil
}
