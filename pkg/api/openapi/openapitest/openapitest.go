// Package openapitest holds the answers of handlers against the API's description.
package openapitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"tidegate/pkg/api/openapi"
)

// Book is the description and what was seen of it. It is safe for concurrent use.
type Book struct {
	t     testing.TB
	doc   doc
	paths []path

	mu   sync.Mutex
	seen map[string]bool
}

type doc struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]map[string]any `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	Tags      []string `json:"tags"`
	Responses map[string]struct {
		Headers map[string]any `json:"headers"`
		Content map[string]struct {
			Schema map[string]any `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
}

type path struct {
	name string
	form *regexp.Regexp
}

// Open reads the description.
func Open(t testing.TB) *Book {
	b := &Book{t: t, seen: map[string]bool{}}
	if err := json.Unmarshal(openapi.Document(), &b.doc); err != nil {
		t.Fatalf("the description is no JSON: %v", err)
	}
	param := regexp.MustCompile(`\\\{[a-z]+\\\}`)
	for _, name := range slices.Sorted(maps.Keys(b.doc.Paths)) {
		b.paths = append(b.paths, path{name, regexp.MustCompile("^" + param.ReplaceAllString(regexp.QuoteMeta(name), "[^/]+") + "$")})
	}
	return b
}

// Around is the handler with every answer looked at.
func (b *Book) Around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		b.look(r, rec)
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

// look holds one answer against the description. Wrong methods and unknown paths are
// no operations of it.
func (b *Book) look(r *http.Request, rec *httptest.ResponseRecorder) {
	name := ""
	for _, p := range b.paths {
		if p.form.MatchString(r.URL.Path) {
			name = p.name
		}
	}
	op, known := b.doc.Paths[name][strings.ToLower(r.Method)]
	if !known {
		if rec.Code != http.StatusNotFound && rec.Code != http.StatusMethodNotAllowed {
			b.t.Errorf("%s %s answers %d and is not described", r.Method, r.URL.Path, rec.Code)
		}
		return
	}
	at := fmt.Sprintf("%s %s %d", r.Method, name, rec.Code)
	answer, known := op.Responses[fmt.Sprint(rec.Code)]
	if !known {
		b.t.Errorf("%s is not described: %s", at, rec.Body)
		return
	}
	kind, _, _ := mime.ParseMediaType(rec.Header().Get("Content-Type"))
	content, known := answer.Content[kind]
	if !known {
		b.t.Errorf("%s: the content type %q is not described", at, kind)
		return
	}
	if strings.HasSuffix(kind, "json") && kind != "application/x-ndjson" {
		var body any
		if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
			b.t.Errorf("%s: the body is no JSON: %v", at, err)
		} else if err := b.fits(body, content.Schema, "body"); err != nil {
			b.t.Errorf("%s: %v in %s", at, err, rec.Body)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[at] = true
}

// fits holds a value against the parts of JSON Schema that the description uses for
// answers.
func (b *Book) fits(v any, schema map[string]any, at string) error {
	if name, ok := schema["$ref"].(string); ok {
		schema = b.doc.Components.Schemas[strings.TrimPrefix(name, "#/components/schemas/")]
	}
	if list, ok := schema["oneOf"].([]any); ok {
		var last error
		for _, s := range list {
			one, _ := s.(map[string]any)
			if last = b.fits(v, one, at); last == nil {
				return nil
			}
		}
		return last
	}
	if one, ok := schema["const"]; ok && v != one {
		return fmt.Errorf("%s is %v instead of %v", at, v, one)
	}
	if list, ok := schema["enum"].([]any); ok && !slices.Contains(list, v) {
		return fmt.Errorf("%s is %v, which is none of %v", at, v, list)
	}
	switch v := v.(type) {
	case map[string]any:
		return b.object(v, schema, at)
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i, e := range v {
			if err := b.fits(e, items, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		return typed("array", schema, at)
	case string:
		if form, ok := schema["pattern"].(string); ok && !regexp.MustCompile(form).MatchString(v) {
			return fmt.Errorf("%s does not have the form %s", at, form)
		}
		return typed("string", schema, at)
	case bool:
		return typed("boolean", schema, at)
	case float64:
		return typed("integer", schema, at)
	}
	return fmt.Errorf("%s is null", at)
}

func (b *Book) object(v, schema map[string]any, at string) error {
	props, described := schema["properties"].(map[string]any)
	for name, e := range v {
		s, known := props[name].(map[string]any)
		if !known {
			if described {
				return fmt.Errorf("%s.%s is not described", at, name)
			}
			continue
		}
		if err := b.fits(e, s, at+"."+name); err != nil {
			return err
		}
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if n, _ := name.(string); v[n] == nil {
			return fmt.Errorf("%s.%s is missing", at, n)
		}
	}
	return typed("object", schema, at)
}

func typed(is string, schema map[string]any, at string) error {
	if want, ok := schema["type"].(string); ok && want != is {
		return fmt.Errorf("%s is of type %s instead of %s", at, is, want)
	}
	return nil
}

// Unseen lists the answers of a tag's operations that nothing has brought.
func (b *Book) Unseen(tag string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for name, ops := range b.doc.Paths {
		for method, op := range ops {
			if !slices.Contains(op.Tags, tag) {
				continue
			}
			for status := range op.Responses {
				if at := strings.ToUpper(method) + " " + name + " " + status; !b.seen[at] {
					out = append(out, at)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
