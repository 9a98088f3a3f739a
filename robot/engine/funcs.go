package engine

import (
	"math"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"
)

// functions are what templates may call beside comparison and logic. There is
// no printf on purpose: with a format from outside it can be made to produce
// hundreds of megabytes.
var functions = template.FuncMap{
	"get": get, "default": orDefault, "fixed": fixed, "date": date, "mask": mask, "link": link,
	"upper": strings.ToUpper, "lower": strings.ToLower, "trim": strings.TrimSpace, "truncate": truncate, "join": join,
	"_text": escapeText, "_path": escapePath, "_query": escapeQuery, "_value": plain,
}

// allowed are the functions that a rules file may name.
var allowed, allowedList = allowedFunctions()

func allowedFunctions() (map[string]bool, string) {
	names := []string{"and", "or", "not", "len", "index", "eq", "ne", "lt", "le", "gt", "ge"}
	for n := range functions {
		if n[0] != '_' {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	known := map[string]bool{}
	for _, n := range names {
		known[n] = true
	}
	return known, strings.Join(names, " ")
}

// get looks up a dotted path in maps and lists and gives fallback when there
// is nothing, null or an empty text.
func get(v any, path string, fallback any) any {
	if found, ok := lookup(v, path); ok && found != nil && found != "" {
		return found
	}
	return fallback
}

func lookup(v any, path string) (any, bool) {
	switch m := v.(type) {
	case map[string]string:
		s, ok := m[path]
		return s, ok
	case map[string]any:
		if found, ok := m[path]; ok {
			return found, true
		}
	}
	name, rest, more := strings.Cut(path, ".")
	var next any
	switch c := v.(type) {
	case map[string]any:
		found, ok := c[name]
		if !ok {
			return nil, false
		}
		next = found
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(c) {
			return nil, false
		}
		next = c[i]
	default:
		return nil, false
	}
	if !more {
		return next, true
	}
	return lookup(next, rest)
}

// orDefault is for pipelines: {{.Content | default "-"}}.
func orDefault(fallback, v any) any {
	if v == nil || v == "" {
		return fallback
	}
	return v
}

// fixed writes a number, or a text that is one, with n decimals.
func fixed(n int, v any) (string, error) {
	if n < 0 || n > 9 {
		return "", bad("fixed takes 0 to 9 decimals")
	}
	s, err := plain(v)
	if err != nil {
		return "", err
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || math.Abs(f) > 1e15 {
		return "", bad("fixed needs a number below 1e15")
	}
	return strconv.FormatFloat(f, 'f', n, 64), nil
}

// beijing is WeChat's zone, which has no summer time; it needs no time zone
// files on the machine (T56).
var beijing = time.FixedZone("UTC+8", 8*60*60)

// date writes Unix seconds in Beijing time by a Go layout.
func date(layout string, v any) (string, error) {
	s, err := plain(v)
	if err != nil {
		return "", err
	}
	sec, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || sec < 0 || sec > 1<<37 {
		return "", bad("date needs Unix seconds")
	}
	return time.Unix(sec, 0).In(beijing).Format(cut(layout, 64)), nil
}

// mask keeps the first and last four characters of a longer text.
func mask(v any) (string, error) {
	s, err := plain(v)
	r := []rune(s)
	if len(r) <= 8 {
		return strings.Repeat("*", len(r)), err
	}
	return string(r[:4]) + "****" + string(r[len(r)-4:]), err
}

// link makes an anchor of chat text. Only http, https and weixin addresses
// are taken, and nothing can leave the attribute or the text.
func link(address, text any) (anchor, error) {
	a, err := plain(address)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(a)
	if err != nil || u.User != nil || (u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "weixin") || u.Host == "" {
		return "", bad("link needs an http, https or weixin address")
	}
	t, err := escapeText(text)
	if err != nil {
		return "", err
	}
	shown := strings.NewReplacer(`"`, "%22", "'", "%27", "<", "%3C", ">", "%3E").Replace(u.String())
	return anchor(`<a href="` + shown + `">` + strings.ReplaceAll(t, "<", "＜") + `</a>`), nil
}

// truncate keeps at most n characters and says with an ellipsis that there
// was more.
func truncate(n int, v any) (string, error) {
	s, err := plain(v)
	if err != nil || n < 1 || utf8.RuneCountInString(s) <= n {
		return s, err
	}
	return string([]rune(s)[:n]) + "…", nil
}

// join puts the texts of a list together.
func join(sep string, v any) (string, error) {
	list, ok := v.([]any)
	if !ok {
		return "", bad("join needs a list")
	}
	parts := make([]string, 0, len(list))
	for _, e := range list {
		s, err := plain(e)
		if err != nil {
			return "", err
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, sep), nil
}
