package arch

import (
	"regexp"
	"strings"
	"testing"
)

var (
	requirementRow  = regexp.MustCompile(`(?m)^\| ([RT][0-9]+) \|`)
	requirementName = regexp.MustCompile(`\b[RT][0-9]+\b`)
)

// A behaviour without a test is a wish, and a number without a row says nothing.
func TestRequirementsAndTestsNameEachOther(t *testing.T) {
	rows, named := map[string]bool{}, map[string]string{}
	walk(t, func(path string, text []byte) {
		switch {
		case path == "docs/requirements.md":
			for _, row := range requirementRow.FindAllSubmatch(text, -1) {
				if rows[string(row[1])] {
					t.Errorf("%s: two rows %s", path, row[1])
				}
				rows[string(row[1])] = true
			}
		case strings.HasSuffix(path, "_test.go"), strings.Contains(path, "/testdata/") && strings.HasSuffix(path, ".txt"):
			sign := "//"
			if strings.HasSuffix(path, ".txt") {
				sign = "#"
			}
			for line := range strings.Lines(string(text)) {
				_, comment, _ := strings.Cut(line, sign)
				for _, name := range requirementName.FindAllString(comment, -1) {
					named[name] = path
				}
			}
		}
	})
	if len(rows) < 100 {
		t.Fatalf("docs/requirements.md has %d rows", len(rows))
	}
	for row := range rows {
		if named[row] == "" {
			t.Errorf("docs/requirements.md: no test names %s", row)
		}
	}
	for name, path := range named {
		if !rows[name] {
			t.Errorf("%s: %s is not in docs/requirements.md", path, name)
		}
	}
}
