package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong, or worth a warning, with its place.
type Problem struct {
	File string
	Line int // 0: the file as a whole, or settings together
	Text string
}

// String gives the problem as file:line: text.
func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Text
	case p.Line == 0:
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Problems is everything that is wrong, in the order of the file.
type Problems []Problem

// Error gives one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// orNil is the error that a caller gets: nil where nothing is wrong.
func (ps Problems) orNil() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}
