package engine

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"
)

// place is where the output of a template goes; it decides how values from
// outside are written.
type place uint8

const (
	inText  place = iota // chat text: no control characters, no anchors
	inPath               // one path segment of a URL, escaped
	inQuery              // part of a URL that the rule wrote, escaped
	inValue              // a string that is encoded afterwards: written as it is
)

// escapers are the functions that are appended to every action. Their names
// cannot be written in a rules file.
var escapers = [...]string{inText: "_text", inPath: "_path", inQuery: "_query", inValue: "_value"}

// tmpl is a compiled template. Static templates have no action and cannot
// fail. One with languages holds a template for each and nothing itself.
type tmpl struct {
	source string
	static bool
	t      *template.Template
	in     *inLanguages
}

// scope is what a template may name beside what is always there.
type scope struct {
	answer bool            // .Answer: the rule has a call
	steps  bool            // the rule has a dialogue, so .Match is gone when it ends
	vars   map[string]bool // what .Vars may be asked for; nil is not checked
}

// Errors of rendering that are worth telling apart in tests.
var (
	errTooMuch = errors.New("the output is too large")
	errSteps   = fmt.Errorf("range loops took more than %d rounds", maxSteps)
)

// compile checks and compiles one template. Only what is needed to fill in
// values is allowed: actions, if, with, range and the functions of funcs.go.
func compile(source string, p place, sc scope) (*tmpl, error) {
	if len(source) > maxTemplate {
		return nil, fmt.Errorf("the template has %d bytes, at most %d are allowed", len(source), maxTemplate)
	}
	if !utf8.ValidString(source) {
		return nil, errors.New("the template is no valid UTF-8")
	}
	if !strings.Contains(source, "{{") {
		return &tmpl{source: source, static: true}, nil
	}
	t, err := template.New("template").Option("missingkey=error").Funcs(functions).Parse(source)
	if err != nil {
		return nil, fmt.Errorf("the template does not parse: %s", strings.TrimPrefix(err.Error(), "template: "))
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("define and block are not supported in rules")
	}
	if t.Tree == nil || t.Root == nil {
		return &tmpl{source: "", static: true}, nil
	}
	w := walker{place: p, scope: sc}
	w.list(t.Root, true)
	if w.err != nil {
		return nil, w.err
	}
	return &tmpl{source: source, t: t}, nil
}

// render executes the template. Errors do not contain values.
func (t *tmpl) render(d *data) (out string, err error) {
	if t = t.of(d.Lang); t.static {
		return t.source, nil
	}
	defer func() {
		if r := recover(); r != nil {
			out, err = "", fmt.Errorf("the template broke: %T", r)
		}
	}()
	own := *d // steps are counted per rendering
	own.steps = 0
	b := bounded{left: maxRendered}
	if err := t.t.Execute(&b, &own); err != nil {
		return "", withoutValues(err)
	}
	return b.b.String(), nil
}

// withoutValues keeps of a template's error where and in which way it
// failed. The error's own text may quote what a follower wrote or a back end
// answered, which must not reach logs.
func withoutValues(err error) error {
	for _, known := range []error{errTooMuch, errSteps} {
		if errors.Is(err, known) {
			return known
		}
	}
	var v *valueError
	if errors.As(err, &v) {
		return v
	}
	var e template.ExecError
	if errors.As(err, &e) && strings.Contains(e.Err.Error(), "map has no entry for key") {
		return errors.New("a field that the template uses is missing: use get with a default")
	}
	return errors.New("the template cannot be filled with these values")
}

// bounded collects at most left bytes.
type bounded struct {
	b    bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, errTooMuch
	}
	b.left -= len(p)
	return b.b.Write(p)
}

// walker checks a parsed template and appends the escaper to each action.
type walker struct {
	place place
	scope scope
	err   error
}

func (w *walker) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// list walks nodes; top says whether the dot is still the callback's data.
func (w *walker) list(l *parse.ListNode, top bool) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.TextNode, *parse.CommentNode, *parse.BreakNode, *parse.ContinueNode:
		case *parse.ActionNode:
			w.pipe(n.Pipe, top)
			if len(n.Pipe.Decl) == 0 {
				n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
					NodeType: parse.NodeCommand,
					Args:     []parse.Node{parse.NewIdentifier(escapers[w.place]).SetPos(n.Pos)},
				})
			}
		case *parse.IfNode:
			w.branch(&n.BranchNode, top, top)
		case *parse.WithNode:
			w.branch(&n.BranchNode, top, false)
		case *parse.RangeNode:
			w.branch(&n.BranchNode, top, false)
			n.List.Nodes = append([]parse.Node{tick(n.Pos)}, n.List.Nodes...)
		default:
			w.fail("%s is not supported in rules", n)
		}
	}
}

func (w *walker) branch(b *parse.BranchNode, top, inside bool) {
	w.pipe(b.Pipe, top)
	w.list(b.List, inside)
	w.list(b.ElseList, top)
}

// tick is the action that counts rounds of a range loop: {{$.Tick}}.
func tick(pos parse.Pos) *parse.ActionNode {
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: pos, Pipe: &parse.PipeNode{
		NodeType: parse.NodePipe, Pos: pos,
		Cmds: []*parse.CommandNode{{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{
			&parse.VariableNode{NodeType: parse.NodeVariable, Pos: pos, Ident: []string{"$", "Tick"}},
		}}},
	}}
}

func (w *walker) pipe(p *parse.PipeNode, top bool) {
	for _, v := range p.Decl {
		if v.Ident[0] == "$" {
			w.fail("$ cannot be assigned")
		}
	}
	for _, c := range p.Cmds {
		for _, a := range c.Args {
			w.argument(a, top)
		}
	}
}

func (w *walker) argument(n parse.Node, top bool) {
	switch n := n.(type) {
	case *parse.PipeNode:
		w.pipe(n, top)
	case *parse.ChainNode:
		w.argument(n.Node, top)
	case *parse.IdentifierNode:
		if !allowed[n.Ident] {
			w.fail("the function %s does not exist in rules: use one of %s", n.Ident, allowedList)
		}
	case *parse.FieldNode:
		if top {
			w.field(n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			w.field(n.Ident[1:])
		}
	}
}

func (w *walker) field(path []string) {
	switch name := path[0]; {
	case !dataFields[name]:
		w.fail("the field .%s does not exist: use one of %s", name, dataFieldList)
	case name == "Answer" && !w.scope.answer:
		w.fail(".Answer exists only in the reply of a rule with call")
	case name == "Match" && w.scope.steps:
		w.fail(".Match is gone when a dialogue ends: name the group, (?P<name>…), and use .Vars.name")
	case name == "Vars" && len(path) > 1 && w.scope.vars != nil && !w.scope.vars[path[1]]:
		w.fail("nothing stores .Vars.%s here: store it in a step of the rule's dialogue, or write get .Vars %q \"default\"", path[1], path[1])
	}
}
