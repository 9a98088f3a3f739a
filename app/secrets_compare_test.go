package app_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// secretName matches what holds, or is made of, something that a stranger must
// not guess byte by byte.
var secretName = regexp.MustCompile(`(?i)(token|secret|signature|passw|apikey|opskey|aeskey|hmac|mac$|hash|digest|sha1|sha256)`)

// notSecret lists comparisons that look like one of secrets and are none, with
// the reason. The key is file:function.
var notSecret = map[string]string{
	"pkg/control/audit.go:next":                "the chain of the audit, which is no secret",
	"pkg/control/audit.go:end":                 "the chain of the audit, which is no secret",
	"pkg/wechat/errcode.go:ActionOf":           "names of calls",
	"pkg/wechat/signature.go:isSignature":      "a length",
	"receipts/store/parked.go:writeParked":     "rows of one message, by the hash of its identity",
	"receipts/store/side.go:writeSteps":        "rows of one message, by the hash of its identity",
	"receipts/store/work.go:variant":           "rows of one message, by the hash of its identity",
	"sender/deliver.go:try":                    "a class of outcomes",
	"sender/outcome.go:decide":                 "a class of outcomes",
	"sender/road.go:learn":                     "a class of outcomes",
	"sender/intake/batch.go:nameAll":           "the digest of a push, of the same caller",
	"sender/intake/templates.go:before":        "the hash of a body that the caller himself has sent",
	"sender/intake/keys_batch.go:rememberAll":  "the order of digests",
	"sender/intake/keys_batch.go:publishedAll": "the order of digests",
	"sender/intake/intake.go:acceptKeyed":      "the hash of a body that the caller himself has sent",
}

// comparers take time that depends on where their arguments differ.
var comparers = map[string]bool{
	"bytes.Equal": true, "bytes.Compare": true, "bytes.EqualFold": true, "strings.Compare": true, "strings.EqualFold": true,
	"slices.Equal": true, "reflect.DeepEqual": true, "cmp.Compare": true,
}

// S4: secrets are compared in constant time (crypto/subtle, hmac.Equal). The
// linter forbids bytes.Equal where secrets are; == is nobody's function, so this
// test reads the source.
func TestS04SecretsAreComparedInConstantTime(t *testing.T) {
	files, used := 0, map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		name := d.Name()
		if d.IsDir() && (name == "test" || name == "testdata" || name == "wechatsim" || strings.HasPrefix(name, ".") && name != "..") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		rel := filepath.ToSlash(strings.TrimPrefix(path, "../"))
		for _, found := range comparisons(set, file) {
			place := rel + ":" + found.function
			if used[place] = true; notSecret[place] == "" {
				t.Errorf("%s:%d (%s): %s: compare secrets with subtle.ConstantTimeCompare or hmac.Equal; if it is none, say so in notSecret", rel, found.line, found.function, found.text)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, files, 100, "the source was read")
	for place := range notSecret {
		require.True(t, used[place], "%s compares nothing of that kind any more", place)
	}
}

func TestS04TheTestOfComparisonsFindsThem(t *testing.T) {
	for code, want := range map[string]int{
		`token == given`: 1, `c.Token != r.token`: 1, `given == e.hash`: 1, `string(sum.Digest()) == x`: 1, `bytes.Equal(mac, x)`: 1,
		`strings.EqualFold(x, c.Secret)`: 1, `a.signature[0] == b`: 1, `(secret) == (x)`: 1, `switchOn(token)`: 0,
		`token == ""`: 0, `len(token) == n`: 0, `secret != nil`: 0, `a == b`: 0, `subtle.ConstantTimeCompare(token, x) == 1`: 0, `bytes.Equal(a, b)`: 0,
	} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "x.go", "package x\nfunc f() bool { return g("+code+") }", 0)
		require.NoError(t, err, code)
		require.Len(t, comparisons(set, file), want, code)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "x.go", "package x\nfunc f() { switch token { case other: } }", 0)
	require.NoError(t, err)
	require.Len(t, comparisons(set, file), 1)
}

type comparison struct {
	function, text string
	line           int
}

// comparisons finds those of secret-named values with anything but a constant.
func comparisons(set *token.FileSet, file *ast.File) []comparison {
	var out []comparison
	for _, decl := range file.Decls {
		function := ""
		if f, ok := decl.(*ast.FuncDecl); ok {
			function = f.Name.Name
		}
		found := func(n ast.Node, what string) {
			out = append(out, comparison{function, what, set.Position(n.Pos()).Line})
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if (n.Op == token.EQL || n.Op == token.NEQ) && secretPair(n.X, n.Y) {
					found(n, fmt.Sprintf("%s %s %s", nameOf(n.X), n.Op, nameOf(n.Y)))
				}
			case *ast.CallExpr:
				if len(n.Args) == 2 && comparers[nameOfFunc(n.Fun)] && secretPair(n.Args[0], n.Args[1]) {
					found(n, nameOfFunc(n.Fun))
				}
			case *ast.SwitchStmt:
				for _, c := range n.Body.List {
					for _, e := range c.(*ast.CaseClause).List {
						if n.Tag != nil && secretPair(n.Tag, e) {
							found(e, "switch "+nameOf(n.Tag))
						}
					}
				}
			}
			return true
		})
	}
	return out
}

func secretPair(a, b ast.Expr) bool {
	return !isConstant(a) && !isConstant(b) && (secretName.MatchString(nameOf(a)) || secretName.MatchString(nameOf(b)))
}

func isConstant(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "true" || e.Name == "false"
	}
	return false
}

// nameOf is the last name of an expression, as a reader takes it.
func nameOf(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.SliceExpr:
		return nameOf(e.X)
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.CallExpr:
		name := nameOf(e.Fun)
		if (name == "string" || name == "byte") && len(e.Args) == 1 {
			return nameOf(e.Args[0])
		}
		if name == "ConstantTimeCompare" || name == "len" {
			return ""
		}
		return name
	}
	return ""
}

func nameOfFunc(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}
