package perf

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// recorder samples a fleet, prints a line for each interval, and keeps the
// latencies of the measured time.
type recorder struct {
	f       *fleet
	out     io.Writer // nil: no lines
	id      string
	begun   time.Time
	last    counts
	lined   counts // at the last line
	at      time.Time
	first   counts // when measuring began
	latency Histogram
	confirm Histogram

	quarters *quarters // nil: the run is one whole

	intervalLatency, intervalConfirm Histogram
}

func newRecorder(f *fleet, o *options, out io.Writer) *recorder {
	r := &recorder{f: f, id: o.id, begun: time.Now(), at: time.Now()}
	if !o.quiet && !o.json {
		r.out = out
	}
	return r
}

// start forgets what was before: the warm-up ends.
func (r *recorder) start() {
	r.sample()
	r.first = r.last
	r.latency.Reset()
	r.confirm.Reset()
}

// sample takes what happened since the last sample into the whole.
func (r *recorder) sample() counts {
	r.intervalLatency.Reset()
	r.intervalConfirm.Reset()
	r.last = r.f.counts(&r.intervalLatency, &r.intervalConfirm)
	r.latency.Merge(&r.intervalLatency)
	r.confirm.Merge(&r.intervalConfirm)
	if r.quarters != nil {
		r.quarters.add(&r.intervalLatency, &r.intervalConfirm, r.last.received)
	}
	return r.last
}

// line samples and prints the rates since the last line.
func (r *recorder) line() {
	before, at := r.lined, r.at
	r.sample()
	r.lined, r.at = r.last, time.Now()
	if r.out == nil {
		return
	}
	wall := r.at.Sub(at).Seconds()
	var b strings.Builder
	fmt.Fprintf(&b, "id: %s, time %.1f s", r.id, r.at.Sub(r.begun).Seconds())
	rate := func(name string, now, before uint64) {
		fmt.Fprintf(&b, ", %s: %.0f msg/s", name, float64(now-before)/wall)
	}
	if len(r.f.producers) > 0 {
		rate("sent", r.last.sent, before.sent)
		if r.f.o.confirm >= 0 {
			rate("confirmed", r.last.confirmed, before.confirmed)
		}
		if r.last.nacked > 0 {
			rate("nacked", r.last.nacked, before.nacked)
		}
		if r.last.returned > 0 {
			rate("returned", r.last.returned, before.returned)
		}
	}
	if len(r.f.consumers) > 0 {
		rate("received", r.last.received, before.received)
	}
	latency := func(name string, h *Histogram) {
		if h.n > 0 {
			fmt.Fprintf(&b, ", %s min/p50/p75/p95/p99: %d/%d/%d/%d/%d us", name, h.Quantile(0)/1000, h.Quantile(0.5)/1000,
				h.Quantile(0.75)/1000, h.Quantile(0.95)/1000, h.Quantile(0.99)/1000)
		}
	}
	latency("latency", &r.intervalLatency)
	latency("confirm", &r.intervalConfirm)
	if r.last.blocked > 0 {
		fmt.Fprintf(&b, ", %d producers blocked by the broker", r.last.blocked)
	}
	fmt.Fprintln(r.out, b.String())
}

// report puts the rates between start and now into the report.
func (r *recorder) report(to *Report, wall float64) {
	to.Seconds = round(wall, 2)
	rate := func(now, before uint64) *Rate {
		return &Rate{now - before, round(float64(now-before)/wall, 0)}
	}
	if len(r.f.producers) > 0 {
		to.Sent = rate(r.last.sent, r.first.sent)
		if r.f.o.confirm >= 0 {
			to.Confirmed = rate(r.last.confirmed, r.first.confirmed)
			if r.last.nacked > 0 {
				to.Nacked = rate(r.last.nacked, r.first.nacked)
			}
		}
		if r.last.returned > 0 {
			to.Returned = rate(r.last.returned, r.first.returned)
		}
	}
	if len(r.f.consumers) > 0 {
		to.Received = rate(r.last.received, r.first.received)
	}
}

// busiest is the larger of what was sent and received since start: what the
// cost of a run is divided by.
func (r *recorder) busiest() uint64 {
	return max(r.last.sent-r.first.sent, r.last.received-r.first.received)
}
