package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// invalidKeys is how the decoder reports keys that no field has.
var invalidKeys = regexp.MustCompile(`'([^']*)' has invalid keys: ([^\n]*)`)

// index is the place of an element in a list.
var index = regexp.MustCompile(`\[\d+\]`)

// unknownKeys turns the decoder's report into one line per unknown key, with
// its new place if it moved, or else the known keys that look most like it, or
// those of its section.
func unknownKeys(text string, dst any, moved map[string]string) []string {
	known := Keys(dst)
	root := reflect.TypeOf(dst).Elem().String()
	var lines []string
	for _, m := range invalidKeys.FindAllStringSubmatch(text, -1) {
		section := strings.TrimPrefix(strings.TrimPrefix(m[1], root), ".")
		for name := range strings.SplitSeq(m[2], ", ") {
			key := strings.TrimPrefix(section+"."+name, ".")
			hint := advice(key, known)
			if to, ok := moved[key]; ok {
				hint = "it is " + to + " now"
			}
			lines = append(lines, fmt.Sprintf("unknown key %s; %s", key, hint))
		}
	}
	return lines
}

// maxAdvice bounds the keys that an advice names.
const maxAdvice = 12

func advice(key string, known []string) string {
	plain := index.ReplaceAllString(key, "[]")
	var near, siblings []string
	parent := plain[:strings.LastIndex(plain, ".")+1]
	for _, k := range known {
		if distance(plain, k) <= 2 {
			near = append(near, k)
		}
		if rest, ok := strings.CutPrefix(k, parent); ok && parent != "" {
			siblings = append(siblings, parent+strings.SplitN(rest, ".", 2)[0])
		}
	}
	siblings = slices.Compact(siblings)
	switch {
	case len(near) > 0:
		return "did you mean " + strings.Join(near[:min(len(near), 3)], " or ") + "?"
	case len(siblings) > 0:
		return "known here: " + strings.Join(siblings[:min(len(siblings), maxAdvice)], ", ")
	}
	var tops []string
	for _, k := range known {
		tops = append(tops, strings.SplitN(strings.TrimSuffix(strings.SplitN(k, ".", 2)[0], "[]"), ".", 2)[0])
	}
	return "known sections: " + strings.Join(slices.Compact(tops), ", ")
}

// Nearest gives the one of the known words that looks most like a word,
// whatever their case; nothing if none is known.
func Nearest(word string, known []string) string {
	word = strings.ToLower(word)
	best, least := "", 0
	for _, k := range known {
		if d := distance(word, strings.ToLower(k)); best == "" || d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two short texts.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}
