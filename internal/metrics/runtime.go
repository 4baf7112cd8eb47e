package metrics

import (
	"math"
	"runtime/metrics"
	"sort"
)

// Runtime is what the Go runtime tells of delays, in seconds: for how long everything stood still for the garbage
// collector, and how long goroutines that could run waited for a processor.
type Runtime struct {
	Pauses, Waits Distribution
}

// readRuntime asks the runtime.
func readRuntime() Runtime {
	samples := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}, {Name: "/sched/latencies:seconds"}}
	metrics.Read(samples)
	var all [2]Distribution
	for i, s := range samples {
		if s.Value.Kind() == metrics.KindFloat64Histogram {
			all[i] = rebucket(s.Value.Float64Histogram())
		}
	}
	return Runtime{Pauses: all[0], Waits: all[1]}
}

// rebucket counts the observations of many fine buckets in the bounds of Durations, each as if it were as long as its bucket
// allows. The sum is an estimate from the middle of each.
func rebucket(from *metrics.Float64Histogram) Distribution {
	bounds := Durations()
	d := Distribution{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
	for i, n := range from.Counts {
		low, high := max(from.Buckets[i], 0), from.Buckets[i+1]
		d.Counts[sort.SearchFloat64s(bounds, high)] += n
		if math.IsInf(high, 1) {
			high = low
		}
		d.Sum += float64(n) * (low + high) / 2
	}
	return d
}
