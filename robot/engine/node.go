package engine

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// reader turns YAML nodes into values and collects problems with their place.
// It goes on after a problem, so that one run shows all of them.
type reader struct {
	file      string
	problems  Problems
	most      int                  // problems that are told
	first     string               // the file's first language
	calendars map[string]*calendar // of the file
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	if len(r.problems) >= r.most {
		return
	}
	line, column := 1, 1
	if n != nil {
		line, column = max(n.Line, 1), max(n.Column, 1)
	}
	r.problems = append(r.problems, Problem{r.file, line, column, fmt.Sprintf(format, args...)})
}

// err gives the problems in the order of the file, or nil.
func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	sort.SliceStable(r.problems, func(i, j int) bool {
		a, b := r.problems[i], r.problems[j]
		return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
	})
	return r.problems
}

// fields are the entries of a mapping by name.
type fields map[string]*yaml.Node

// mapping reads a mapping with known keys. Unknown and repeated keys are
// problems; subject says what the mapping describes.
func (r *reader) mapping(n *yaml.Node, subject string, known ...string) fields {
	out := fields{}
	for _, p := range r.pairs(n, subject) {
		if !contains(known, p.key.Value) {
			r.fail(p.key, "%s: unknown key %q: use %s", subject, cut(p.key.Value, 64), strings.Join(known, ", "))
			continue
		}
		out[p.key.Value] = p.value
	}
	return out
}

type entry struct{ key, value *yaml.Node }

// pairs reads a mapping with any keys, in order.
func (r *reader) pairs(n *yaml.Node, subject string) []entry {
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%s: write a mapping of key: value lines here", subject)
		return nil
	}
	var out []entry
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			r.fail(k, "%s: a key must be a plain word", subject)
			continue
		}
		if first := seen[k.Value]; first != nil {
			r.fail(k, "%s: the key %q is there twice, first in line %d: remove one", subject, cut(k.Value, 64), first.Line)
			continue
		}
		seen[k.Value] = k
		out = append(out, entry{k, v})
	}
	return out
}

// list gives the entries of a sequence; a single value counts as a list of
// one, so that authors need no brackets for it.
func (r *reader) list(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// text reads a scalar that is not null.
func (r *reader) text(n *yaml.Node, subject string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.fail(n, "%s: write a text here", subject)
		return "", false
	}
	return n.Value, true
}

// texts reads one text or a list of texts, none of them empty or repeated.
func (r *reader) texts(n *yaml.Node, subject string) []string {
	items := r.list(n)
	if len(items) == 0 || len(items) > maxWords {
		r.fail(n, "%s: give 1 to %d texts", subject, maxWords)
		return nil
	}
	var out []string
	for _, item := range items {
		s, ok := r.text(item, subject)
		switch {
		case !ok:
		case strings.TrimSpace(s) == "":
			r.fail(item, "%s: an empty text would match by accident: remove it", subject)
		case contains(out, s):
			r.fail(item, "%s: %q is there twice: remove one", subject, cut(s, 64))
		default:
			out = append(out, s)
		}
	}
	return out
}

func (r *reader) flag(n *yaml.Node, subject string) bool {
	var b bool
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&b) != nil {
		r.fail(n, "%s: write true or false", subject)
	}
	return b
}

func (r *reader) duration(n *yaml.Node, subject string, least, most time.Duration) time.Duration {
	s, ok := r.text(n, subject)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < least || d > most {
		r.fail(n, "%s: write a duration from %s to %s, such as 3s", subject, least, most)
		return 0
	}
	return d
}

// template reads and compiles a template.
func (r *reader) template(n *yaml.Node, subject string, p place, sc scope) *tmpl {
	s, ok := r.text(n, subject)
	if !ok {
		return nil
	}
	t, err := compile(s, p, sc)
	if err != nil {
		r.fail(n, "%s: %v", subject, err)
		return nil
	}
	return t
}

// noAliases refuses what makes a small file large or its places misleading.
func (r *reader) noAliases(n *yaml.Node) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.fail(n, "anchors and aliases (& and *) are not supported: write the value out")
	}
	if n.Kind == yaml.AliasNode {
		return
	}
	for _, c := range n.Content {
		r.noAliases(c)
	}
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}
