package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// shown are the histograms that are printed, and how.
var shown = []struct {
	name, metric string
	show         func(float64) string
}{
	{"collector pause", "holdfast_collector_pause_seconds", duration},
	{"wait for a processor", "holdfast_processor_wait_seconds", duration},
	{"round of a shard", "holdfast_shard_round_seconds", duration},
	{"append until stable", "holdfast_shard_stable_seconds", duration},
	{"frame written", "holdfast_log_write_seconds", duration},
	{"frame synced", "holdfast_log_sync_seconds", duration},
	{"frame indexed", "holdfast_log_index_seconds", duration},
	{"segment change", "holdfast_log_segment_change_seconds", duration},
	{"index held", "holdfast_log_hold_seconds", duration},
	{"checkpoint", "holdfast_log_checkpoint_seconds", duration},
	{"rewriting step", "holdfast_log_rewrite_step_seconds", duration},
	{"records a sync", "holdfast_log_records_per_sync", number},
	{"messages a sync", "holdfast_log_messages_per_sync", number},
}

func duration(seconds float64) string {
	if math.IsInf(seconds, 1) {
		return "more"
	}
	if math.IsNaN(seconds) || seconds == 0 {
		return "-"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond / 10).String()
}

func number(n float64) string { return fmt.Sprintf("%.1f", n) }

// histogram is one of the page, with buckets that are not cumulative.
type histogram struct {
	bounds []float64
	counts []uint64
	sum    float64
}

// histograms reads all of a metrics page.
func histograms(page io.Reader) (map[string]*histogram, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, fmt.Errorf("the metrics page cannot be read: %w", err)
	}
	all := map[string]*histogram{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			from := m.GetHistogram()
			if from == nil {
				continue
			}
			h := &histogram{sum: from.GetSampleSum()}
			var below uint64
			for _, b := range from.GetBucket() {
				h.bounds = append(h.bounds, b.GetUpperBound())
				h.counts = append(h.counts, b.GetCumulativeCount()-below)
				below = b.GetCumulativeCount()
			}
			if n := from.GetSampleCount(); n > below {
				h.bounds, h.counts = append(h.bounds, math.Inf(1)), append(h.counts, n-below)
			}
			all[name] = h
		}
	}
	return all, nil
}

// less is what came after an earlier look. Either may be nil, and a bucket without a bound may be missing in the earlier one.
func (h *histogram) less(before *histogram) *histogram {
	if h == nil {
		return &histogram{}
	}
	out := &histogram{bounds: h.bounds, counts: append([]uint64(nil), h.counts...), sum: h.sum}
	if before != nil {
		out.sum -= before.sum
		for i := range before.counts {
			if i < len(out.counts) {
				out.counts[i] -= before.counts[i]
			}
		}
	}
	return out
}

func (h *histogram) count() (n uint64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

func (h *histogram) mean() float64 { return h.sum / float64(h.count()) }

// quantile is the upper bound of the bucket in which the q-th part of all observations is reached.
func (h *histogram) quantile(q float64) float64 {
	want := uint64(math.Ceil(q * float64(h.count())))
	var n uint64
	for i, c := range h.counts {
		if n += c; n >= want && c > 0 {
			return h.bounds[i]
		}
	}
	return math.Inf(1)
}
