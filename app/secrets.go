package app

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"

	"go.uber.org/zap"
	"gopkg.in/yaml.v3"
)

// readableSecrets lists the files with secrets that every user of this machine
// can read (S85): the configuration file if secrets stand in it, and the files
// that it refers to. No file has none.
func readableSecrets(file string) ([]string, error) {
	if file == "" || runtime.GOOS == "windows" { // there, the mode says nothing
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	files, plain := secretsIn(&doc, secretNames(reflect.TypeFor[Config]()))
	if plain {
		files = append(files, file)
	}
	var out []string
	for _, f := range files {
		if st, err := os.Stat(f); err == nil && st.Mode().Perm()&0o004 != 0 {
			out = append(out, f)
		}
	}
	return out, nil
}

// warnOfReadableSecrets says so at the start of a role too: not everybody asks
// the doctor.
func warnOfReadableSecrets(file string, log *zap.Logger) {
	readable, err := readableSecrets(file)
	if err != nil {
		log.Warn("who may read the secrets could not be checked", zap.Error(err))
	}
	for _, f := range readable {
		log.Warn("every user of this machine can read the secrets in a file; take that right away with chmod o=", zap.String("file", f))
	}
}

// secretNames collects the last part of every key that holds a secret.
func secretNames(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("koanf"), ",")
		if f.Tag.Get("secret") == "true" {
			names[name] = true
		}
		ft := f.Type
		if ft.Kind() == reflect.Slice {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct && f.IsExported() {
			for n := range secretNames(ft) {
				names[n] = true
			}
		}
	}
	return names
}

// secretsIn finds the files that secrets come from, and whether any secret
// stands in the document itself.
func secretsIn(n *yaml.Node, names map[string]bool) (files []string, plain bool) {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && names[n.Content[i-1].Value] {
			for _, text := range texts(child) {
				path, isFile := strings.CutPrefix(text, "file:")
				switch {
				case isFile:
					files = append(files, path)
				case text != "" && !strings.HasPrefix(text, "env:"):
					plain = true
				}
			}
			continue
		}
		more, inside := secretsIn(child, names)
		files, plain = append(files, more...), plain || inside
	}
	return files, plain
}

// texts gives all values at and below a node: a secret may be a map, such as the
// headers of a webhook.
func texts(n *yaml.Node) (out []string) {
	if n.Kind == yaml.ScalarNode {
		return []string{n.Value}
	}
	for i, child := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			out = append(out, texts(child)...)
		}
	}
	return out
}
