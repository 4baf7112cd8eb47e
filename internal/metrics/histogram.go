package metrics

import (
	"math"
	"sort"
	"sync/atomic"
)

// Histogram counts observations in buckets with fixed upper bounds. Observe is two atomic additions and one
// compare-and-set; any goroutine may call it, and Read beside it.
type Histogram struct {
	bounds []float64       // ascending; an observation above the last falls into the bucket without bound
	counts []atomic.Uint64 // len(bounds)+1
	sum    atomic.Uint64   // bits of a float64
}

// Distribution is what a histogram had counted when it was read.
type Distribution struct {
	Bounds []float64
	Counts []uint64 // per bucket, not cumulative; one more than Bounds
	Sum    float64
}

// NewHistogram makes a histogram with the given upper bounds, ascending.
func NewHistogram(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Exponential gives n bounds, each factor times the one before.
func Exponential(first, factor float64, n int) []float64 {
	bounds := make([]float64, n)
	for i := range bounds {
		bounds[i] = first
		first *= factor
	}
	return bounds
}

// Durations are bounds in seconds for whatever is to be short: 1, 2 and 5 of each decade from a microsecond to ten seconds,
// so that what takes longer than a limit of so many milliseconds stands in buckets of its own.
func Durations() []float64 {
	bounds := make([]float64, 0, 22)
	for decade := 1e6; decade >= 1; decade /= 10 {
		bounds = append(bounds, 1/decade, 2/decade, 5/decade)
	}
	return append(bounds, 10)
}

// Amounts are bounds for numbers of things: the powers of two up to 65,536.
func Amounts() []float64 { return Exponential(1, 2, 17) }

// Observe counts one observation.
func (h *Histogram) Observe(v float64) {
	h.counts[sort.SearchFloat64s(h.bounds, v)].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// Read gives what was counted so far. An observation made meanwhile may show in the counts and not yet in the sum.
func (h *Histogram) Read() Distribution {
	d := Distribution{Bounds: h.bounds, Counts: make([]uint64, len(h.counts)), Sum: math.Float64frombits(h.sum.Load())}
	for i := range h.counts {
		d.Counts[i] = h.counts[i].Load()
	}
	return d
}

// Count is the number of observations.
func (d Distribution) Count() uint64 {
	var n uint64
	for _, c := range d.Counts {
		n += c
	}
	return n
}

// Add adds the counts of another distribution with the same bounds; adding to a zero Distribution copies.
func (d *Distribution) Add(other Distribution) {
	if d.Bounds == nil {
		d.Bounds, d.Counts = other.Bounds, make([]uint64, len(other.Counts))
	}
	for i, c := range other.Counts {
		d.Counts[i] += c
	}
	d.Sum += other.Sum
}
