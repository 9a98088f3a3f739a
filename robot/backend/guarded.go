package backend

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	"tidegate/pkg/guard"
)

// Classes of calls (D16).
const (
	// Shared answers are the same for everybody who asks.
	Shared = "shared"
	// Personal answers concern one follower.
	Personal = "personal"
)

// Use says how a call goes through the back end's guard. The zero value passes
// the gate and keeps nothing.
type Use struct {
	// Class is Shared, Personal or "".
	Class string
	// Cache lets a personal answer be kept, encrypted.
	Cache bool
	// Person names the follower whom a personal answer concerns.
	Person string
	// Resource is what the answer is about; "" is the call's own path and query.
	Resource string
	// Changes are the resources that the call changes: no answer about them that
	// was fetched before is given to anybody afterwards.
	Changes []string
}

// Guarded calls one back end through its guard. Close it when nobody calls any
// more.
type Guarded struct {
	client *Client
	guard  *guard.Guard
}

// NewGuarded makes the guard of a back end. Without Redis the process guards by
// itself.
func NewGuarded(cfg Config, c *Client, d guard.Deps) (*Guarded, error) {
	g, err := guard.New(cfg.WithDefaults().guard(), d)
	if err != nil {
		return nil, fmt.Errorf("back end %s: %w", cfg.Name, err)
	}
	return &Guarded{c, g}, nil
}

// Close ends the guard.
func (g *Guarded) Close() { g.guard.Close() }

// Guard is for operations.
func (g *Guarded) Guard() *guard.Guard { return g.guard }

// Call is Client.Call through the guard. note says where an answer came from
// that was not fetched for this caller, or is empty. Errors are those of Call and
// the guard's refusals, of kind Limited or Unavailable.
//
// A shared call is made for everybody: it carries no Idempotency-Key, which would
// name one callback, and nobody's Before.
func (g *Guarded) Call(ctx context.Context, r Request, u Use) (answer any, note string, err error) {
	kept := u.Class == Shared || u.Class == Personal && u.Cache
	if !kept || r.Method != http.MethodGet {
		_, err = g.guard.Through(ctx, func(ctx context.Context) error {
			answer, err = g.client.Call(ctx, r)
			return err
		})
		g.changed(ctx, u)
		return answer, "", err
	}
	r.Key, r.Before = "", nil
	fetch := func(ctx context.Context) ([]byte, error) {
		return g.client.Exchange(ctx, func() (Request, error) { return r, nil }, func(body []byte) error {
			_, err := g.client.decoded(body) // what cannot be read must not be shared
			return err
		})
	}
	var res guard.Result
	if u.Class == Shared {
		res, err = g.guard.Do(ctx, key(u, r), fetch)
	} else {
		res, err = g.guard.Personal(ctx, key(u, r), fetch)
	}
	if err != nil {
		return nil, "", err
	}
	answer, err = g.client.decoded(res.Value)
	return answer, noteOf(res), err
}

// key names the resource and, within it, the very call: whatever a rule says
// about resources, two different paths never share an answer.
func key(u Use, r Request) string {
	call := sha256.Sum256([]byte(r.Path))
	variant := base64.RawURLEncoding.EncodeToString(call[:])
	resource := u.Resource
	if resource == "" {
		resource = variant
	}
	return guard.Variant(named(resource, u), variant)
}

// named puts the person in front of a personal resource.
func named(resource string, u Use) string {
	sum := sha256.Sum256([]byte(resource))
	name := base64.RawURLEncoding.EncodeToString(sum[:])
	if u.Class == Shared {
		return name
	}
	return guard.OfPerson(u.Person, name)
}

// Erase removes what is kept of a follower (Use.Person).
func (g *Guarded) Erase(ctx context.Context, person string) error {
	if _, err := g.guard.Erase(ctx, person); err != nil {
		return fmt.Errorf("back end's personal answers: %w", err)
	}
	return nil
}

// changed voids what a write may have changed, whatever became of it: after an
// error something of it may have been done, and to void costs one call more. The
// same name may be somebody's own and everybody's resource.
func (g *Guarded) changed(ctx context.Context, u Use) {
	for _, resource := range u.Changes {
		for _, class := range []string{Shared, Personal} {
			// The key is ours, so the error is guard.ErrOwed: other robots may use the
			// old answer for its life. The call is done and is not made again for that.
			_ = g.guard.Invalidate(context.WithoutCancel(ctx), named(resource, Use{Class: class, Person: u.Person}))
		}
	}
}

func noteOf(r guard.Result) string {
	switch r.How {
	case guard.Hit, guard.Waited, guard.Stale, guard.Local:
		return fmt.Sprintf("answer shared (%s, %s old)", r.How, r.Age.Round(time.Millisecond))
	}
	return ""
}
