package perf

import (
	commandline "flag"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The cases of rapid are the same in every run; -rapid.seed=N makes others.
func init() { commandline.Set("rapid.seed", "1") }

// Every value lies within one part in 2*steps of what its bucket stands for.
func TestBucketsAreNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64Range(0, 1<<topBits-1).Draw(t, "v")
		if d := middle(bucket(v)) - v; d > v/steps || -d > v/steps {
			t.Fatalf("%d became %d", v, middle(bucket(v)))
		}
		if w := rapid.Int64Range(0, v).Draw(t, "w"); bucket(w) > bucket(v) {
			t.Fatalf("%d lies above %d", w, v)
		}
	})
	if bucket(1<<62) != buckets-1 || bucket(1<<topBits-1) != buckets-1 {
		t.Fatal("the last bucket takes what is too long")
	}
}

// Quantiles are those of the sorted values, as exactly as the buckets are.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, 1e10), 1, 200).Draw(t, "values")
		cut := rapid.IntRange(0, len(values)).Draw(t, "cut")
		var all, second Histogram
		for i, v := range values {
			if i < cut {
				all.Add(v)
			} else {
				second.Add(v)
			}
		}
		all.Merge(&second)
		slices.Sort(values)
		if all.Count() != uint64(len(values)) || all.Quantile(0) != values[0] || all.Quantile(1) != values[len(values)-1] {
			t.Fatalf("count %d, min %d, max %d of %v", all.Count(), all.Quantile(0), all.Quantile(1), values)
		}
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		want := values[max(int(q*float64(len(values))+0.5), 1)-1]
		if d := all.Quantile(q) - want; d > want/steps || -d > want/steps {
			t.Fatalf("quantile %v is %d, want %d", q, all.Quantile(q), want)
		}
	})
}

func TestHistogramEdges(t *testing.T) {
	var h Histogram
	if h.Summary() != nil || h.Quantile(0.5) != 0 {
		t.Fatal("an empty histogram has no summary")
	}
	h.AddN(-5, 3)
	h.AddN(7000, 0)
	h.Add(2000)
	if s := h.Summary(); s.Count != 4 || s.Min != 0 || s.Max != 2 || s.Mean != 0.5 {
		t.Fatalf("summary %+v", s)
	}
	h.Reset()
	if h.Count() != 0 || h.Summary() != nil {
		t.Fatal("reset")
	}
}
