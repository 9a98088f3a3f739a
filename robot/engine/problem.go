package engine

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong in a rules file.
type Problem struct {
	File         string
	Line, Column int // from 1
	Text         string
}

// Error gives "file:line:column: text", which editors can jump to.
func (p Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Problems are all that is wrong, at most 20, in the order of the file.
type Problems []Problem

// Error gives one line per problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}
