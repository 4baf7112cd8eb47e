package harness

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Scenario is one line of the list.
type Scenario struct {
	Name   string
	Tags   []string
	Args   []string // of holdfast perf
	Beside []string // of a second load, if there is one
	Figs   []Fig
}

// Fig names a figure of the report, as a path through its JSON.
type Fig struct {
	Path string
	More bool // more is better
}

// Is says whether the scenario has a tag.
func (s Scenario) Is(tag string) bool { return slices.Contains(s.Tags, tag) }

var knownTags = []string{"long", "disk", "log", "kill", "floor", "own", "cluster", "links"}

// ReadScenarios reads a list.
func ReadScenarios(r io.Reader) ([]Scenario, error) {
	var all []Scenario
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if rest, is := strings.CutPrefix(line, "&"); is {
			if len(all) == 0 {
				return nil, fmt.Errorf("line %d: nothing stands above this load", n)
			}
			all[len(all)-1].Beside = strings.Fields(rest)
			continue
		}
		s, err := readScenario(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if slices.ContainsFunc(all, func(o Scenario) bool { return o.Name == s.Name }) {
			return nil, fmt.Errorf("line %d: a second scenario %s", n, s.Name)
		}
		all = append(all, s)
	}
	return all, lines.Err()
}

func readScenario(line string) (Scenario, error) {
	parts := strings.Split(line, "|")
	if len(parts) != 4 {
		return Scenario{}, fmt.Errorf("%d columns instead of 4", len(parts))
	}
	s := Scenario{Name: strings.TrimSpace(parts[0]), Tags: strings.Fields(parts[1]), Args: strings.Fields(parts[2])}
	if s.Name == "" || len(s.Args) == 0 {
		return s, fmt.Errorf("a scenario needs a name and options")
	}
	for _, t := range s.Tags {
		if !slices.Contains(knownTags, t) {
			return s, fmt.Errorf("unknown tag %q", t)
		}
	}
	for _, f := range strings.Fields(parts[3]) {
		path, sign := f[:len(f)-1], f[len(f)-1]
		if path == "" || sign != '+' && sign != '-' {
			return s, fmt.Errorf("figure %q does not end with + or -", f)
		}
		s.Figs = append(s.Figs, Fig{path, sign == '+'})
	}
	return s, nil
}

// shape is the broker that the scenario wants.
func (s Scenario) shape() shape {
	if s.Is("cluster") || s.Is("links") {
		return shape{nodes: clusterNodes, links: s.Is("links")}
	}
	return shape{nodes: 1}
}

// lookup finds a figure in a report; a dot goes one level down.
func lookup(report map[string]any, path string) (float64, bool) {
	var at any = report
	for name := range strings.SplitSeq(path, ".") {
		m, is := at.(map[string]any)
		if !is {
			return 0, false
		}
		at = m[name]
	}
	v, is := at.(float64)
	return v, is
}
