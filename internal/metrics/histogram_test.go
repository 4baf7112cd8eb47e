package metrics

import (
	"math"
	"sync"
	"testing"
)

func TestHistogramPutsAnObservationUnderItsBound(t *testing.T) {
	h := NewHistogram([]float64{1, 2, 4})
	for _, v := range []float64{0.5, 1, 1.5, 4, 5, 100} {
		h.Observe(v)
	}
	d := h.Read()
	want := []uint64{2, 1, 1, 2}
	for i := range want {
		if d.Counts[i] != want[i] {
			t.Fatalf("counts %v, want %v", d.Counts, want)
		}
	}
	if d.Count() != 6 || math.Abs(d.Sum-112) > 1e-9 {
		t.Fatalf("count %d, sum %v; want 6 and 112", d.Count(), d.Sum)
	}
}

func TestHistogramLosesNothingUnderConcurrency(t *testing.T) {
	h := NewHistogram(Durations())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				h.Observe(0.001)
			}
		})
	}
	wg.Wait()
	if d := h.Read(); d.Count() != 8000 || math.Abs(d.Sum-8) > 1e-6 {
		t.Fatalf("count %d, sum %v; want 8000 and 8", d.Count(), d.Sum)
	}
}

func TestDistributionsAdd(t *testing.T) {
	a, b := NewHistogram(Durations()), NewHistogram(Durations())
	a.Observe(1)
	b.Observe(3)
	b.Observe(1e9)
	var sum Distribution
	sum.Add(a.Read())
	sum.Add(b.Read())
	if sum.Count() != 3 || sum.Sum != 4+1e9 {
		t.Fatalf("count %d, sum %v", sum.Count(), sum.Sum)
	}
	if before := a.Read().Count(); before != 1 {
		t.Fatalf("adding changed the source: %d", before)
	}
}
