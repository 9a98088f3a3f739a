package alarm

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// The receivers whose rules are built in.
const (
	generic  = "generic"
	wecom    = "wecom"
	dingtalk = "dingtalk"
	feishu   = "feishu"
)

func isRobot(name string) bool {
	return slices.Contains([]string{generic, wecom, dingtalk, feishu}, name)
}

//go:embed templates
var builtin embed.FS

// The bounds of a template and of what it may write; robots take less.
const (
	maxTemplate = 64 << 10
	maxRendered = 64 << 10
)

// form is a template with the type of what it writes.
type form struct {
	tmpl        *template.Template
	contentType string
}

// loadForm reads a built-in template or a file, and tries it: a template that
// cannot be rendered would be found out by the first alarm.
func loadForm(name string) (*form, error) {
	text, err := templateText(name)
	if err != nil {
		return nil, err
	}
	t, err := template.New(filepath.Base(name)).Option("missingkey=error").Funcs(functions()).Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	f := &form{tmpl: t, contentType: "application/json; charset=utf-8"}
	if strings.HasSuffix(strings.TrimSuffix(name, ".tmpl"), ".txt") {
		f.contentType = "text/plain; charset=utf-8"
	}
	return f, f.try()
}

func templateText(name string) ([]byte, error) {
	if isRobot(name) {
		return builtin.ReadFile("templates/" + name + ".json.tmpl")
	}
	st, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("template: use generic, wecom, dingtalk, feishu or a file: %w", err)
	}
	if st.Size() > maxTemplate {
		return nil, fmt.Errorf("template %s has %d bytes; at most %d are read", name, st.Size(), maxTemplate)
	}
	return os.ReadFile(name)
}

// functions are what a template has beside Go's own.
func functions() template.FuncMap {
	return template.FuncMap{
		// json writes a value as JSON, a text with its quotes.
		"json": func(v any) (string, error) {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			err := e.Encode(v)
			return strings.TrimSuffix(b.String(), "\n"), err
		},
		// lines joins what is not empty.
		"lines": func(parts ...string) string {
			return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n")
		},
		// clock writes a time for people, with its offset.
		"clock": func(t time.Time) string { return t.Format("2006-01-02 15:04:05 -07:00") },
		// rfc3339 writes a time for programs.
		"rfc3339": func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	}
}

// limited refuses more than a receiver would take.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxRendered {
		return 0, fmt.Errorf("it writes more than %d bytes", maxRendered)
	}
	return l.Buffer.Write(p)
}

func (f *form) render(m message) ([]byte, error) {
	var b limited
	if err := f.tmpl.Execute(&b, m); err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	if strings.HasPrefix(f.contentType, "application/json") && !json.Valid(b.Bytes()) {
		return nil, errors.New("template: what it writes is not JSON; put every value through the function json, and name a text template .txt")
	}
	return b.Bytes(), nil
}

// try renders every kind of message with a text that needs escaping.
func (f *form) try() error {
	a := Alarm{Name: "queue_faulty", Subject: `bank "callbacks"/3`, Severity: Critical, Text: "no progress\n\\ <for> 30s", TextZH: "无进展\t\"30s\""}
	for _, language := range []string{English, Chinese} {
		for _, firing := range []bool{true, false} {
			t := Transition{Alarm: a, Firing: firing, Since: time.Unix(1700000000, 0), At: time.Unix(1700000030, 0)}
			m := newMessage(t, firing, "node-1", language, "runbook")
			m.Timestamp, m.Sign = "1700000030", "c2lnbg=="
			if _, err := f.render(m); err != nil {
				return err
			}
		}
	}
	return nil
}
