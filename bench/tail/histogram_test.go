package main

import (
	"math"
	"strings"
	"testing"
)

const page = `# TYPE x_seconds histogram
x_seconds_bucket{le="0.001"} 98
x_seconds_bucket{le="0.01"} 99
x_seconds_bucket{le="0.02"} 99
x_seconds_bucket{le="+Inf"} 100
x_seconds_sum 2
x_seconds_count 100
`

func TestHistogramOfAPage(t *testing.T) {
	after, err := histograms(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	before, err := histograms(strings.NewReader(strings.ReplaceAll(strings.ReplaceAll(page, "98", "10"), "99", "10")))
	if err != nil {
		t.Fatal(err)
	}
	h := after["x_seconds"].less(nil)
	if h.count() != 100 || h.mean() != 0.02 || h.quantile(0.98) != 0.001 || h.quantile(0.99) != 0.01 || !math.IsInf(h.quantile(1), 1) {
		t.Errorf("%+v", h)
	}
	if grown := after["x_seconds"].less(before["x_seconds"]); grown.counts[0] != 88 || grown.counts[1] != 1 || after["x_seconds"].counts[0] != 98 {
		t.Errorf("%+v", grown)
	}
	if none := (*histogram)(nil).less(nil); none.count() != 0 {
		t.Errorf("%+v", none)
	}
}
