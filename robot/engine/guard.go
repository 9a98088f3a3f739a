package engine

import (
	"fmt"
	"net/http"

	"gopkg.in/yaml.v3"
)

// Classes of answers (D16), as in a call's guard.
const (
	classShared   = "shared"
	classPersonal = "personal"
)

// guarded says how a call goes through the back end's guard.
type guarded struct {
	class   string
	cache   bool
	key     *tmpl
	changes []*tmpl
}

// GuardUse is a rule whose call says something about the guard of a back end.
type GuardUse struct {
	Rule, Backend string
	Cache         bool // personal answers are kept
}

// Guards lists the rules whose calls need a guard, in the order of the file.
func (r *Rules) Guards() []GuardUse {
	var out []GuardUse
	for _, u := range r.list {
		if u.call != nil && u.call.guard != nil {
			out = append(out, GuardUse{u.name, u.call.backend, u.call.guard.cache})
		}
	}
	return out
}

func (g *guarded) fill(c *Call, d *data) (err error) {
	if g == nil {
		return nil
	}
	c.Class, c.Cache = g.class, g.cache
	if g.key != nil {
		if c.Resource, err = g.key.render(d); err != nil {
			return fmt.Errorf("guard: key: %w", err)
		}
	}
	for _, t := range g.changes {
		name, err := t.render(d)
		if err != nil {
			return fmt.Errorf("guard: changes: %w", err)
		}
		c.Changes = append(c.Changes, name)
	}
	return nil
}

// guard reads how a call goes through the guard: a class alone, or a mapping.
func (r *reader) guard(n *yaml.Node, c *call, subject string, sc scope) {
	g := &guarded{}
	c.guard = g
	at := n
	if n.Kind == yaml.MappingNode {
		f := r.mapping(n, subject, "class", "cache", "key", "changes")
		at = f["class"]
		if f["cache"] != nil {
			g.cache = r.flag(f["cache"], subject+": cache")
		}
		if f["key"] != nil {
			g.key = r.template(f["key"], subject+": key", inValue, sc)
		}
		if f["changes"] != nil {
			for _, item := range r.list(f["changes"]) {
				if t := r.template(item, subject+": changes", inValue, sc); t != nil {
					g.changes = append(g.changes, t)
				}
			}
		}
	}
	if at != nil {
		if g.class, _ = r.text(at, subject+": class"); g.class != classShared && g.class != classPersonal {
			r.fail(at, "%s: class: write shared (the answer is the same for everybody) or personal", subject)
		}
	}
	read := c.method == http.MethodGet
	switch {
	case at != nil && !read:
		r.fail(n, "%s: class: only answers to GET can be shared or kept; a %s may say what it changes", subject, c.method)
	case at == nil && (g.cache || g.key != nil):
		r.fail(n, "%s: class is missing: write shared or personal", subject)
	case g.cache && g.class == classShared:
		r.fail(n, "%s: cache: shared answers are kept anyway while demand is high: remove cache", subject)
	case read && len(g.changes) > 0:
		r.fail(n, "%s: changes: a GET changes nothing: use it with POST, PUT, PATCH or DELETE", subject)
	case at == nil && len(g.changes) == 0:
		r.fail(n, "%s: write shared or personal, or what the call changes", subject)
	}
}
