package arch

import (
	"bytes"
	"go/format"
	"path"
	"regexp"
	"strings"
	"testing"
)

// longest is the most lines a file may have that somebody has to read.
const longest = 700

// Every package says in doc.go what it is.
func TestPackagesAreDocumented(t *testing.T) {
	documented, named := map[string]bool{}, map[string]string{}
	for _, f := range goFiles(t) {
		if f.ast.Name.Name != "main" {
			named[f.dir] = strings.TrimSuffix(f.ast.Name.Name, "_test")
		}
		if path.Base(f.path) == "doc.go" && f.ast.Doc != nil {
			documented[f.dir] = strings.HasPrefix(f.ast.Doc.Text(), "Package "+f.ast.Name.Name+" ")
		}
	}
	for dir, name := range named {
		if !documented[dir] {
			t.Errorf("%s has no doc.go with a comment that begins \"Package %s \"", dir, name)
		}
	}
}

// No file is too long to read in one go.
func TestFilesAreShort(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.generated && f.lines > longest {
			t.Errorf("%s has %d lines; split it by activity", f.path, f.lines)
		}
	}
}

// The source is formatted.
func TestFormat(t *testing.T) {
	walk(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
			t.Errorf("%s is not formatted (%v)", path, err)
		}
	})
}

// unwanted is text that may not stand in the repository. The patterns are
// written so that they do not find themselves.
var unwanted = map[string]*regexp.Regexp{
	"something unfinished":        regexp.MustCompile(`\b(TO[D]O|FIX[M]E|XX[X])\b|not yet implemen[t]ed|for no[w]\b|place[h]older`),
	"a path of a machine":         regexp.MustCompile(`/wor[k]/|/tmp/h[f]\b|/roo[t]/|/home/[a-z]`),
	"a word of the workplace":     regexp.MustCompile(`sub[a]gent|clo[s]ing note|before-s[t]op|\.libr[a]ry`),
	"a number of an issue":        regexp.MustCompile(`(?i)\bissue [#]?[0-9]+`),
	"an address of a registry":    regexp.MustCompile(`registry\.npmj[s]|proxy\.gola[n]g|deb\.debia[n]`),
	"a conflict of two histories": regexp.MustCompile(`(?m)^(<<<<<<[<]|>>>>>>[>])`),
}

// Nothing unfinished and nothing of the place where it was written is left in.
func TestUnwantedText(t *testing.T) {
	walk(t, func(path string, text []byte) {
		if bytes.IndexByte(text, 0) >= 0 || strings.HasSuffix(path, ".sum") {
			return
		}
		for what, pattern := range unwanted {
			for _, at := range pattern.FindAllIndex(text, 3) {
				line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
				t.Errorf("%s:%d: %s: %q", path, line, what, text[at[0]:at[1]])
			}
		}
	})
}
