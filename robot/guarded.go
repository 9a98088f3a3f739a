package robot

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"tidegate/pkg/guard"
	"tidegate/pkg/wire"
	"tidegate/robot/backend"
	"tidegate/robot/engine"
)

// makeGuards puts guards in front of the back ends that have one. They work from
// now on, until closeGuards.
func (r *Robot) makeGuards() error {
	r.guards = map[string]*backend.Guarded{}
	for _, b := range r.cfg.Backends {
		if !b.Guard.Enabled {
			continue
		}
		g, err := backend.NewGuarded(b, r.backends[b.Name], guard.Deps{Redis: r.d.Redis, Log: r.d.Log.Named("guard"), Registerer: r.d.Registry})
		if err != nil {
			r.closeGuards()
			return err
		}
		r.guards[b.Name] = g
	}
	return nil
}

func (r *Robot) closeGuards() {
	for _, g := range r.guards {
		g.Close()
	}
}

// Guards answers GET …/{backend} with the state of a back end's guard; nil if
// there are none.
func (r *Robot) Guards() http.Handler {
	var all []*guard.Guard
	for _, g := range r.guards {
		all = append(all, g.Guard())
	}
	if r.bindings != nil {
		all = append(all, r.bindings.Guard())
	}
	if len(all) == 0 {
		return nil
	}
	return guard.Handler(all...)
}

// call asks the back end of a decision, through its guard if it has one. note
// says where the answer came from, if it was not fetched for this callback.
func (r *Robot) call(ctx context.Context, b *backend.Client, c *wire.Callback, call *engine.Call, q backend.Request) (answer any, note string, err error) {
	g := r.guards[call.Backend]
	if g == nil {
		answer, err = b.Call(ctx, q)
		return answer, "", err
	}
	u := backend.Use{Class: call.Class, Cache: call.Cache, Person: person(c.Account, c.OpenID), Resource: call.Resource, Changes: call.Changes}
	return g.Call(ctx, q, u)
}

// person names a follower to the guards.
func person(account, openid string) string { return account + "/" + openid }

// erasePersonal removes what the guards keep of a follower. One that fails leaves
// none of the others out.
func (r *Robot) erasePersonal(ctx context.Context, who string) error {
	var errs []error
	for name, g := range r.guards {
		if err := g.Erase(ctx, who); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// knowsGuards refuses rules that want of a guard what the configuration does not
// give.
func (r *Robot) knowsGuards(rules Engine) error {
	e, ok := rules.(*engine.Rules)
	if !ok {
		return nil
	}
	has := map[string]backend.GuardConfig{}
	for _, b := range r.cfg.Backends {
		has[b.Name] = b.Guard
	}
	for _, u := range e.Guards() {
		switch g := has[u.Backend]; {
		case !g.Enabled:
			return fmt.Errorf("set rules: rule %q wants the guard of the back end %q, which has none: set guard.enabled there, or remove guard from the call", u.Rule, u.Backend)
		case u.Cache && g.Key == "":
			return fmt.Errorf("set rules: rule %q keeps personal answers of the back end %q, which has no guard.key to encrypt them with", u.Rule, u.Backend)
		}
	}
	return nil
}
