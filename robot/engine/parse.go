package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"

	"gopkg.in/yaml.v3"

	"tidegate/pkg/fault"
	"tidegate/pkg/wire"
)

// Known is what rules may refer to. A nil list is not checked.
type Known struct {
	Accounts []string
	Backends []string // that take calls
	Bots     []string // that answer in the place of rules
	Engines  []string
	// Vars are the names of variables that the robot gives to templates beside
	// those that dialogues collect.
	Vars []string
}

// Load reads a rules file. Errors are of kind fault.Invalid if the content is
// wrong; then Problems is in their chain.
func Load(path string, known Known) (*Rules, error) {
	src, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, src, known)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.Invalid, "load rules", "%w: give the path of a rules file (rules)", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, "load rules", "%s: %w", path, err)
	}
	return src, nil
}

// Parse reads rules. file appears in problems only.
func Parse(file string, src []byte, known Known) (*Rules, error) {
	return readRules(&reader{file: file, most: maxProblems}, src, known)
}

// Check is Load for people: it tells all that is wrong.
func Check(path string, known Known) (*Rules, error) {
	src, err := read(path)
	if err != nil {
		return nil, err
	}
	return readRules(&reader{file: path, most: allProblems}, src, known)
}

func readRules(r *reader, src []byte, known Known) (rules *Rules, err error) {
	defer func() {
		// A panic of the YAML library must not take a running robot down
		// because somebody saved a broken file.
		if p := recover(); p != nil {
			rules, err = nil, fault.New(fault.Invalid, "read rules", "%s: this file cannot be read as YAML", r.file)
		}
	}()
	if len(src) > maxFile {
		r.fail(nil, "the file has more than %d bytes: split off what is not a rule", maxFile)
		return nil, fault.Wrap(fault.Invalid, "read rules", r.err())
	}
	root := r.document(src)
	if root != nil {
		r.noAliases(root)
	}
	if root != nil && len(r.problems) == 0 {
		rules = r.rules(root, known)
	}
	if err := r.err(); err != nil {
		return nil, fault.Wrap(fault.Invalid, "read rules", err)
	}
	sum := sha256.Sum256(src)
	rules.version = hex.EncodeToString(sum[:6])
	return rules, nil
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// document parses exactly one YAML document.
func (r *reader) document(src []byte) *yaml.Node {
	d := yaml.NewDecoder(bytes.NewReader(src))
	var doc, second yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		r.fail(nil, "the file is empty: begin with \"version: 1\" and \"rules:\"")
		return nil
	} else if err != nil {
		at := &yaml.Node{Line: 1, Column: 1}
		text := err.Error()
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil {
				at.Line = n
			}
			text = text[len(m[0]):]
		}
		r.fail(at, "this is no YAML: %s: check indentation, quotes and tabs", cut(text, 200))
		return nil
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		r.fail(&second, "only one document is allowed: remove what follows ---")
		return nil
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		r.fail(&doc, "the file is empty: begin with \"version: 1\" and \"rules:\"")
		return nil
	}
	return doc.Content[0]
}

func (r *reader) rules(root *yaml.Node, known Known) *Rules {
	f := r.mapping(root, "rules file", "version", "languages", "hours", "fallback", "busy", "rules")
	out := &Rules{file: r.file, byName: map[string]*rule{}}
	if v := f["version"]; v == nil || v.Value != "1" {
		at := root
		if v != nil {
			at = v
		}
		r.fail(at, "version: write \"version: 1\"; other versions are not known to this release")
	}
	out.langs = r.languages(f["languages"], known)
	r.first, r.calendars = out.langs.first, r.hours(f["hours"])
	if n := f["fallback"]; n != nil {
		out.fallback = r.staticText(n, "fallback")
	}
	if n := f["busy"]; n != nil {
		out.busy = r.staticText(n, "busy")
	}
	list := f["rules"]
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 || len(list.Content) > maxRules {
		at := root
		if list != nil {
			at = list
		}
		r.fail(at, "rules: write a list of 1 to %d rules, each beginning with \"- name:\"", maxRules)
		return out
	}
	names := map[string]*yaml.Node{}
	for _, n := range list.Content {
		if u := r.rule(n, known, names); u != nil {
			out.list = append(out.list, u)
			out.byName[u.name] = u
		}
	}
	r.unreachable(out.list, list)
	r.swallowed(out.list, list)
	return out
}

// unreachable names rules that stand behind one which takes everything they
// could match.
func (r *reader) unreachable(list []*rule, at *yaml.Node) {
	for i, u := range list {
		for _, before := range list[:i] {
			if before.match.byDefault && before.takesAll() && before.during == nil && before.outside == nil && before.covers(u) && u.match.onlyAnswerable() {
				r.fail(&yaml.Node{Line: u.line, Column: at.Column}, "rule %q: it can never match, since the default rule %q in line %d comes first: move the default to the end", u.name, before.name, before.line)
				break
			}
		}
	}
}

// covers reports whether u applies to every account that other applies to.
func (u *rule) covers(other *rule) bool {
	if u.accounts == nil {
		return true
	}
	if other.accounts == nil {
		return false
	}
	for a := range other.accounts {
		if !u.accounts[a] {
			return false
		}
	}
	return true
}

// onlyAnswerable reports whether everything that the matcher can match is
// matched by a default rule too.
func (m *matcher) onlyAnswerable() bool {
	if m.byDefault || m.text != nil || m.scene != nil || m.menuItem != nil {
		return true
	}
	for e := range m.events {
		if !interactive[e] {
			return false
		}
	}
	return m.events != nil || m.msgTypes != nil && !m.msgTypes["event"]
}

func validClass(s string) bool { return s == wire.PreferDuplicate || s == wire.PreferLoss }
