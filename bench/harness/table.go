package harness

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// values are a figure in the runs of one broker.
type values struct {
	counted, disturbed []float64
}

// gather finds a figure in the results of a scenario and a broker.
func gather(results []Result, scenario, broker, path string) (v values) {
	for _, r := range results {
		if r.Scenario != scenario || r.Broker != broker {
			continue
		}
		x, ok := lookup(r.Report, path)
		switch {
		case !ok || r.Error != "":
		case r.Disturbed:
			v.disturbed = append(v.disturbed, x)
		default:
			v.counted = append(v.counted, x)
		}
	}
	return v
}

// median is the middle of the values, the mean of the two in the middle of an
// even number.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Clone(v)
	slices.Sort(s)
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// cell shows a median with its range; one of disturbed runs only is marked and
// has no part in a ratio.
func (v values) cell() string {
	all, mark := v.counted, ""
	if len(all) == 0 {
		all, mark = v.disturbed, "~"
	}
	switch len(all) {
	case 0:
		return "-"
	case 1:
		return mark + short(all[0])
	}
	return fmt.Sprintf("%s%s (%s to %s)", mark, short(median(all)), short(slices.Min(all)), short(slices.Max(all)))
}

// ratio compares the medians of two brokers and says which is better.
func ratio(a, b values, more bool) string {
	x, y := median(a.counted), median(b.counted)
	if math.IsNaN(x) || math.IsNaN(y) || x == 0 {
		return "-"
	}
	r := y / x
	word := "same"
	switch {
	case r > 1 == more && r != 1:
		word = "better"
	case r != 1:
		word = "worse"
	}
	return fmt.Sprintf("%.2f %s", r, word)
}

func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// table writes the comparison of all brokers with the first.
func table(w io.Writer, results []Result, scenarios []Scenario, kinds []*Kind) {
	head, line := []string{"scenario", "figure"}, []string{"---", "---"}
	for i, k := range kinds {
		head, line = append(head, k.Name), append(line, "---:")
		if i > 0 {
			head, line = append(head, k.Name+" / "+kinds[0].Name), append(line, "---:")
		}
	}
	row := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	row(head)
	row(line)
	for _, s := range scenarios {
		for _, f := range s.Figs {
			first := gather(results, s.Name, kinds[0].Name, f.Path)
			cells := []string{s.Name, f.Path, first.cell()}
			for _, k := range kinds[1:] {
				v := gather(results, s.Name, k.Name, f.Path)
				cells = append(cells, v.cell(), ratio(first, v, f.More))
			}
			row(cells)
		}
		if s.Is("floor") {
			aboveFloor(row, results, s, kinds)
		}
	}
}

// floor is the broker that stores nothing and shows what the machine and the
// client cost.
const floor = "echo"

// aboveFloor adds rows with what lies above the floor, if it was measured.
func aboveFloor(row func([]string), results []Result, s Scenario, kinds []*Kind) {
	if kinds[0].Name == floor || !slices.ContainsFunc(kinds, func(k *Kind) bool { return k.Name == floor }) {
		return
	}
	for _, f := range s.Figs {
		base := median(gather(results, s.Name, floor, f.Path).counted)
		first := gather(results, s.Name, kinds[0].Name, f.Path).less(base)
		cells := []string{s.Name, f.Path + " above " + floor, first.cell()}
		for _, k := range kinds[1:] {
			if k.Name == floor {
				cells = append(cells, "", "")
				continue
			}
			v := gather(results, s.Name, k.Name, f.Path).less(base)
			cells = append(cells, v.cell(), ratio(first, v, f.More))
		}
		row(cells)
	}
}

// less is the values that count with a floor taken from each.
func (v values) less(base float64) (above values) {
	for _, x := range v.counted {
		if !math.IsNaN(base) {
			above.counted = append(above.counted, x-base)
		}
	}
	return above
}

// remarks lists the runs that do not count, and why.
func remarks(w io.Writer, results []Result, limit float64) {
	for _, r := range results {
		switch {
		case r.Error != "":
			fmt.Fprintf(w, "- round %d, %s, %s failed: %s\n", r.Round, r.Scenario, r.Broker, strings.TrimSpace(r.Error))
		case r.Disturbed:
			fmt.Fprintf(w, "- round %d, %s, %s does not count: other work took %.2f cores, the limit is %.2f\n", r.Round, r.Scenario, r.Broker, r.Other, limit)
		}
	}
}
