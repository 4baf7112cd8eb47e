package arch

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// A room, or a test: "queuehost: `TestA`, `TestB`; blackbox: `TestC`".
	guaranteeName = regexp.MustCompile("\\b([a-z]+): |`(Test[A-Za-z0-9_]+)`|`make ([a-z-]+)`|\\b([RT][0-9]+)\\b")
	makeTarget    = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

// Whatever the page of guarantees says is shown by a test, and every test that it names is there, in the room that it says.
func TestGuaranteesAreShown(t *testing.T) {
	tests, isRoom := map[string][]string{}, map[string]bool{} // by name: the rooms that have it
	for _, f := range goFiles(t) {
		room := f.dir[strings.LastIndex(f.dir, "/")+1:]
		isRoom[room] = true
		if !f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, is := d.(*ast.FuncDecl); is && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				tests[fn.Name.Name] = append(tests[fn.Name.Name], room)
			}
		}
	}
	var page string
	rows, targets := map[string]bool{}, map[string]bool{}
	walk(t, func(path string, text []byte) {
		switch path {
		case "docs/guarantees.md":
			page = string(text)
		case "docs/requirements.md":
			for _, row := range requirementRow.FindAllSubmatch(text, -1) {
				rows[string(row[1])] = true
			}
		case "Makefile":
			for _, m := range makeTarget.FindAllSubmatch(text, -1) {
				targets[string(m[1])] = true
			}
		}
	})
	shown := 0
	for _, part := range promises(page) {
		room, proofs := "", 0
		if strings.HasPrefix(part.section, "Several nodes") {
			room = "blackbox"
		}
		for _, m := range guaranteeName.FindAllStringSubmatch(part.text, -1) {
			switch {
			case m[1] != "":
				if isRoom[m[1]] {
					room = m[1]
				}
			case m[2] != "":
				proofs++
				if in := tests[m[2]]; len(in) == 0 {
					t.Errorf("docs/guarantees.md names %s, which is nowhere", m[2])
				} else if room == "" || !slices.Contains(in, room) {
					t.Errorf("docs/guarantees.md says that %s is in room %q; it is in %v", m[2], room, in)
				}
			case m[3] != "":
				proofs++
				if !targets[m[3]] {
					t.Errorf("docs/guarantees.md names make %s, which is no target", m[3])
				}
			case m[4] != "":
				proofs++
				if !rows[m[4]] {
					t.Errorf("docs/guarantees.md names %s, which docs/requirements.md does not have", m[4])
				}
			}
		}
		if part.row && proofs == 0 {
			t.Errorf("docs/guarantees.md: nothing shows %q", part.text)
		}
		shown += proofs
	}
	if shown < 40 {
		t.Errorf("docs/guarantees.md names %d tests", shown)
	}
}

// promise is a row of a table, or an item or paragraph of text.
type promise struct {
	section, text string
	row           bool // or an item: something that is promised
}

func promises(page string) (list []promise) {
	section, head := "", false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "## "):
			section = line[3:]
		case strings.HasPrefix(line, "|--"):
			list = list[:len(list)-1] // what stands over it are the names of the columns
			head = true
		case strings.HasPrefix(line, "| "):
			list = append(list, promise{section, line, head})
			continue
		case line == "" || strings.HasPrefix(line, "- ") || len(list) == 0:
			list = append(list, promise{section, line, strings.HasPrefix(line, "- ") && !strings.Contains(section, "not promised")})
		default:
			list[len(list)-1].text += " " + line
		}
		if !strings.HasPrefix(line, "|") {
			head = false
		}
	}
	return list
}
