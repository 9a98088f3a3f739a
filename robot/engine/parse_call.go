package engine

import (
	"math"
	"net/http"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// call reads the call of a rule.
func (r *reader) call(n *yaml.Node, subject string, known Known, sc scope) *call {
	f := r.mapping(n, subject, "backend", "method", "path", "query", "body", "timeout", "guard")
	c := &call{method: http.MethodPost}
	if b := f["backend"]; b == nil {
		r.fail(n, "%s: backend is missing: name one of the configured back ends (%s)", subject, listOr(known.Backends, "robot.backends"))
	} else if c.backend, _ = r.text(b, subject+": backend"); !backendName.MatchString(c.backend) {
		r.fail(b, "%s: backend: use a name, not an address; addresses belong to the configuration (robot.backends)", subject)
	} else if known.Backends != nil && !contains(known.Backends, c.backend) {
		r.fail(b, "%s: there is no back end %q: configured are %s", subject, c.backend, listOr(known.Backends, "none"))
	}
	if m := f["method"]; m != nil {
		s, _ := r.text(m, subject+": method")
		if c.method = strings.ToUpper(s); !validMethod(c.method) {
			r.fail(m, "%s: method: use GET, POST, PUT, PATCH or DELETE", subject)
		}
	}
	if t := f["timeout"]; t != nil {
		c.timeout = r.duration(t, subject+": timeout", 10*time.Millisecond, MaxCallTimeout)
	}
	r.callPath(n, f["path"], c, subject+": path", sc)
	if q := f["query"]; q != nil {
		for _, p := range r.pairs(q, subject+": query") {
			if t := r.template(p.value, subject+": query: "+cut(p.key.Value, 64), inValue, sc); t != nil {
				c.query = append(c.query, pair{p.key.Value, t})
			}
		}
	}
	r.callBody(f["body"], c, subject+": body", sc)
	if g := f["guard"]; g != nil {
		r.guard(g, c, subject+": guard", sc)
	}
	return c
}

func (r *reader) callPath(whole, n *yaml.Node, c *call, subject string, sc scope) {
	if n == nil {
		r.fail(whole, "%s is missing: write the path below the back end's base_url, such as /v1/bills", subject)
		return
	}
	c.path = r.template(n, subject, inPath, sc)
	switch {
	case c.path == nil:
	case !strings.HasPrefix(n.Value, "/"):
		r.fail(n, "%s: it must begin with /", subject)
	case c.path.static:
		if err := checkPath(c.path.source); err != nil {
			r.fail(n, "%s: %s", subject, strings.TrimPrefix(err.Error(), "path: "))
		}
	}
}

// callBody reads the body: a tree of templates. Without one, calls that may
// have a body send the whole callback.
func (r *reader) callBody(n *yaml.Node, c *call, subject string, sc scope) {
	bodiless := c.method == http.MethodGet || c.method == http.MethodDelete
	switch {
	case n == nil:
		c.letter = !bodiless
	case bodiless:
		r.fail(n, "%s: %s has no body: use query, or method POST", subject, c.method)
	case n.Kind != yaml.MappingNode && n.Kind != yaml.SequenceNode:
		r.fail(n, "%s: write the JSON as a YAML mapping; its texts may be templates", subject)
	default:
		c.body = r.value(n, subject, 0, sc)
	}
}

func (r *reader) value(n *yaml.Node, subject string, depth int, sc scope) *value {
	if depth > maxBodyDepth {
		r.fail(n, "%s: it is nested deeper than %d", subject, maxBodyDepth)
		return &value{}
	}
	switch n.Kind {
	case yaml.MappingNode:
		v := &value{shape: isObject}
		for _, p := range r.pairs(n, subject) {
			v.fields = append(v.fields, field{p.key.Value, r.value(p.value, subject+": "+cut(p.key.Value, 64), depth+1, sc)})
		}
		return v
	case yaml.SequenceNode:
		v := &value{shape: isList}
		for _, item := range n.Content {
			v.items = append(v.items, r.value(item, subject, depth+1, sc))
		}
		return v
	}
	return r.scalar(n, subject, sc)
}

func (r *reader) scalar(n *yaml.Node, subject string, sc scope) *value {
	switch n.Tag {
	case "!!str", "!number":
		v := &value{shape: isTemplate, number: n.Tag == "!number"}
		if v.t = r.template(n, subject, inValue, sc); v.t == nil {
			return &value{}
		}
		return v
	case "!!null":
		return &value{}
	case "!!bool", "!!int", "!!float":
		var fixed any
		if err := n.Decode(&fixed); err != nil || !finite(fixed) {
			r.fail(n, "%s: this is no JSON value: put it in quotes", subject)
		}
		return &value{fixed: fixed}
	}
	r.fail(n, "%s: put the value in quotes, or mark a number with !number", subject)
	return &value{}
}

// finite refuses .inf and .nan, which JSON cannot say.
func finite(v any) bool {
	f, ok := v.(float64)
	return !ok || !math.IsInf(f, 0) && !math.IsNaN(f)
}
