package perf

import "math/bits"

// The buckets of a histogram are linear up to steps and then have steps of
// equal width for each power of two, so that a value is off by less than one
// part in 2*steps wherever it lies.
const (
	stepBits = 6
	steps    = 1 << stepBits
	// topBits bounds the range: 2^43 ns is more than two hours. What is
	// longer is counted in the last bucket; the maximum stays exact.
	topBits = 43
	buckets = (topBits-stepBits)*steps + steps
)

// Histogram counts durations in nanoseconds. It is for one goroutine at a time
// and never allocates. The zero value is empty.
type Histogram struct {
	n        uint64
	min, max int64
	sum      float64
	counts   [buckets]uint64
}

// bucket is the index of the bucket that holds v, which is not negative.
func bucket(v int64) int {
	if v < steps {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - stepBits - 1
	return min(shift*steps+int(v>>shift), buckets-1)
}

// middle is the value that stands for a bucket.
func middle(i int) int64 {
	if i < 2*steps {
		return int64(i)
	}
	shift := i/steps - 1
	return int64(i-shift*steps)<<shift + int64(1)<<shift/2
}

// Add counts one value; a negative one, which clocks that differ can produce,
// counts as zero.
func (h *Histogram) Add(v int64) { h.AddN(v, 1) }

// AddN counts a value n times.
func (h *Histogram) AddN(v int64, n uint64) {
	if n == 0 {
		return
	}
	v = max(v, 0)
	if h.n == 0 || v < h.min {
		h.min = v
	}
	h.max = max(h.max, v)
	h.n += n
	h.sum += float64(v) * float64(n)
	h.counts[bucket(v)] += n
}

// Merge adds what another histogram has counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
	for i, c := range o.counts {
		h.counts[i] += c
	}
}

// Reset empties the histogram.
func (h *Histogram) Reset() {
	if h.n > 0 {
		*h = Histogram{}
	}
}

// Count is the number of values.
func (h *Histogram) Count() uint64 { return h.n }

// Quantile is a value that the part q of all values does not exceed: 0 gives
// the minimum, 1 the maximum, both exact.
func (h *Histogram) Quantile(q float64) int64 {
	rank := uint64(q*float64(h.n) + 0.5)
	switch {
	case h.n == 0:
		return 0
	case rank <= 1:
		return h.min
	case rank >= h.n:
		return h.max
	}
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			return min(max(middle(i), h.min), h.max)
		}
	}
	return h.max
}

// Summary is a histogram in the percentiles that a report shows, in
// microseconds.
type Summary struct {
	Count uint64  `json:"count"`
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P75   float64 `json:"p75"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// Summary gives the percentiles, nil for an empty histogram.
func (h *Histogram) Summary() *Summary {
	if h.n == 0 {
		return nil
	}
	us := func(q float64) float64 { return round(float64(h.Quantile(q))/1e3, 1) }
	return &Summary{
		Count: h.n, Min: us(0), Mean: round(h.sum/float64(h.n)/1e3, 1), P50: us(0.5), P75: us(0.75),
		P95: us(0.95), P99: us(0.99), P999: us(0.999), Max: us(1),
	}
}
