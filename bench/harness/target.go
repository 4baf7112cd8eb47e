package harness

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Target is one line of the list of what must be shown.
type Target struct {
	What, Scenario, Figure string
	Text                   string // as it stands in the list
	Least                  bool   // at least the bound; else at most
	Bound                  float64
	Peer                   bool   // a multiple of the peer's figure
	Of                     string // a multiple of the own figure in this scenario
	Above                  string // a multiple of the peer's, both above this floor
}

// ReadTargets reads a list.
func ReadTargets(r io.Reader) ([]Target, error) {
	var all []Target
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		t, err := readTarget(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, t)
	}
	return all, lines.Err()
}

func readTarget(line string) (t Target, err error) {
	parts := strings.Split(line, "|")
	if len(parts) != 4 {
		return t, fmt.Errorf("%d columns instead of 4", len(parts))
	}
	for i, to := range []*string{&t.What, &t.Scenario, &t.Figure, &t.Text} {
		*to = strings.TrimSpace(parts[i])
	}
	words := strings.Fields(t.Text)
	if len(words) < 2 || words[0] != "<=" && words[0] != ">=" {
		return t, fmt.Errorf("target %q begins with neither <= nor >=", t.Text)
	}
	t.Least = words[0] == ">="
	if t.Bound, err = fraction(words[1]); err != nil {
		return t, err
	}
	switch rest := words[2:]; {
	case len(rest) == 0:
	case rest[0] == "x" && len(rest) == 1:
		t.Peer = true
	case rest[0] == "x" && len(rest) == 2:
		t.Of = rest[1]
	case rest[0] == "x" && len(rest) == 3 && rest[1] == "above":
		t.Peer, t.Above = true, rest[2]
	default:
		return t, fmt.Errorf("target %q: nobody knows what that is", t.Text)
	}
	return t, nil
}

// fraction reads 12, 1.5, or 1/10.
func fraction(text string) (float64, error) {
	above, below, divided := strings.Cut(text, "/")
	v, err := strconv.ParseFloat(above, 64)
	if err == nil && divided {
		var d float64
		if d, err = strconv.ParseFloat(below, 64); err == nil {
			v /= d
		}
	}
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	return v, nil
}

// outcome is what became of a target: the two medians as the table shows them,
// what is compared with the bound, and whether it is met. NaN is a figure that
// nobody measured, or in disturbed runs only.
type outcome struct {
	peer, own, floor float64
	compared         float64
}

func (t Target) met(o outcome) string {
	switch {
	case math.IsNaN(o.compared):
		return "not measured"
	case t.Least && o.compared >= t.Bound, !t.Least && o.compared <= t.Bound:
		return "yes"
	}
	return "no"
}

// judge works a target out of the results.
func (t Target) judge(results []Result, peer, own string) (o outcome) {
	of := func(scenario, broker string) float64 {
		return median(gather(results, scenario, broker, t.Figure).counted)
	}
	o.peer, o.own, o.floor = of(t.Scenario, peer), of(t.Scenario, own), math.NaN()
	switch {
	case t.Above != "":
		o.floor = of(t.Scenario, t.Above)
		o.compared = divided(o.own-o.floor, o.peer-o.floor)
	case t.Peer:
		o.compared = divided(o.own, o.peer)
	case t.Of != "":
		o.compared = divided(o.own, of(t.Of, own))
	default:
		o.compared = o.own
	}
	return o
}

// divided is NaN where there is nothing to compare with.
func divided(a, b float64) float64 {
	if b <= 0 {
		return math.NaN()
	}
	return a / b
}

// verdict writes the table of all targets and says how many were met and how
// many were not measured.
func verdict(w io.Writer, targets []Target, results []Result, peer, own string) (met, open int) {
	cell := func(v float64) string {
		if math.IsNaN(v) {
			return "-"
		}
		return short(v)
	}
	row := func(cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	row("what", "scenario", "figure", "target", peer, own, "ratio", "met")
	row("---", "---", "---", "---", "---:", "---:", "---:", "---")
	for _, t := range targets {
		o := t.judge(results, peer, own)
		ratio, mine := "-", cell(o.own)
		if t.Peer || t.Of != "" {
			ratio = cell(o.compared)
			if o.compared > 0 && o.compared < 1 {
				ratio = "1/" + short(1/o.compared)
			}
		}
		if !math.IsNaN(o.floor) {
			mine += " (" + t.Above + " " + short(o.floor) + ")"
		}
		word := t.met(o)
		switch word {
		case "yes":
			met++
		case "not measured":
			open++
		}
		row(t.What, t.Scenario, t.Figure, t.Text, cell(o.peer), mine, ratio, word)
	}
	return met, open
}

// needed are the scenarios that the targets look at, in the order of the list.
func needed(all []Scenario, targets []Target) []Scenario {
	return slices.DeleteFunc(slices.Clone(all), func(s Scenario) bool {
		return !slices.ContainsFunc(targets, func(t Target) bool { return t.Scenario == s.Name || t.Of == s.Name })
	})
}
