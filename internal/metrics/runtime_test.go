package metrics

import (
	"math"
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestRebucketNeverMakesShorter(t *testing.T) {
	d := rebucket(&metrics.Float64Histogram{
		Counts:  []uint64{1, 2, 3, 4},
		Buckets: []float64{math.Inf(-1), 0.8e-3, 1e-3, 9e-3, math.Inf(1)},
	})
	at := map[float64]uint64{}
	for i, bound := range d.Bounds {
		at[bound] = d.Counts[i]
	}
	if at[1e-3] != 3 || at[10e-3] != 3 || d.Counts[len(d.Bounds)] != 4 || d.Count() != 10 {
		t.Errorf("%v", d)
	}
	if want := 0.4e-3 + 2*0.9e-3 + 3*5e-3 + 4*9e-3; math.Abs(d.Sum-want) > 1e-9 {
		t.Errorf("sum %v, want %v", d.Sum, want)
	}
}

func TestRuntimeTellsOfDelays(t *testing.T) {
	runtime.GC()
	if r := readRuntime(); r.Pauses.Count() == 0 || r.Waits.Count() == 0 {
		t.Errorf("%+v", r)
	}
}
