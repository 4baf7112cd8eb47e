package perf

import (
	"context"
	"fmt"
	"time"
)

// runLoad publishes and consumes for a while, or until the counts are reached,
// or until it is interrupted. Throughput, latency and fanout are runs with
// different options.
func (e *env) runLoad(ctx context.Context) (*Report, error) {
	o := e.o
	if o.producers == 0 && o.consumers == 0 {
		return nil, usagef("there is neither a producer nor a consumer")
	}
	top := o.topology()
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	var disk Disk
	if err := e.disk(ctx, &disk); err != nil {
		return nil, err
	}
	if err := o.prepare(ctx, top); err != nil {
		return nil, err
	}
	f := newFleet(o)
	err := f.consume(ctx, top.queues, o.consumers)
	if err == nil {
		err = f.connect(ctx, top, o.producers)
	}
	var r *Report
	if err == nil {
		r = e.measure(ctx, f, m)
	}
	f.close()
	if err == nil {
		r.failed(o.cleanUp(ctx, top))
	}
	if err != nil {
		return nil, err
	}
	if err := e.disk(ctx, &disk); err != nil {
		return nil, err
	}
	if o.disk != "" {
		disk.summarize()
		r.Disk = &disk
		if r.Confirm != nil && disk.P50 > 0 {
			r.figure("confirm_by_disk", r.Confirm.P50/disk.P50, "of a bare overwrite with fdatasync, both p50, is what a confirm takes")
		}
	}
	return r, nil
}

// measure starts the producers and follows the run.
func (e *env) measure(ctx context.Context, f *fleet, m *meter) *Report {
	o := e.o
	r := e.report()
	rec := newRecorder(f, o, e.out)
	var q *quarters
	if o.warmup > 0 {
		f.send()
		e.follow(ctx, f, rec, o.warmup, false)
	}
	logged, err := e.synced(ctx)
	r.failed(err)
	a := m.read()
	if o.warmup > 0 {
		rec.start()
	}
	if e.o.scenario == "soak" {
		q = newQuarters(m, o.folder, o.time)
		rec.quarters = q
	}
	if o.warmup == 0 {
		f.send()
	}
	e.follow(ctx, f, rec, o.time, true)
	b := m.read()
	rec.sample()
	rec.report(r, b.at.Sub(a.at).Seconds())
	costs := m.costs(a, b, rec.busiest())
	r.Costs = &costs
	after, err := e.synced(context.WithoutCancel(ctx))
	r.failed(err)
	r.perSync(logged, after, b.at.Sub(a.at).Seconds())
	f.halt()
	// What is still under way belongs to the latencies, though not to the rates.
	before := rec.last.sent
	if o.confirm >= 0 {
		if missing := f.settle(o.confirmBy); missing > 0 {
			r.failed(fmt.Errorf("%d publishes were not confirmed within %v", missing, o.confirmBy))
		}
	}
	if o.rate > 0 && len(f.consumers) > 0 {
		f.drain(before, 300*time.Millisecond)
	}
	rec.sample()
	r.Latency, r.Confirm = rec.latency.Summary(), rec.confirm.Summary()
	if q != nil {
		q.report(r)
	}
	if o.rate > 0 {
		r.figure("late_ms_max", float64(f.late())/1e6, "ms that a message went out after it was due, at most")
	}
	for _, err := range f.errors() {
		r.failed(err)
	}
	return r
}

// follow prints a line for each interval until the time is over, or the counts
// are reached. A time of zero ends at once for a warm-up, and never for a run.
func (e *env) follow(ctx context.Context, f *fleet, rec *recorder, d time.Duration, run bool) {
	var over <-chan time.Time
	switch {
	case d > 0:
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	case !run:
		return
	}
	ticks := time.NewTicker(e.o.interval)
	defer ticks.Stop()
	sent := f.sent
	if len(f.producers) == 0 {
		sent = nil
	}
	full := make(chan struct{})
	if e.o.receives > 0 {
		quit := make(chan struct{})
		defer close(quit)
		go func() {
			for _, k := range f.consumers {
				select {
				case <-k.full:
				case <-quit:
					return
				}
			}
			close(full)
		}()
	}
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-f.failed:
			return
		case <-full:
			return
		case <-sent:
			// Everything was sent: the rest of what is on its way still counts.
			if e.o.confirm >= 0 {
				f.settle(e.o.confirmBy)
			}
			if len(f.consumers) > 0 && e.o.receives == 0 {
				f.drain(e.expected(f), e.o.idle)
			}
			if len(f.consumers) == 0 || e.o.receives == 0 {
				return
			}
			sent = nil
		case <-ticks.C:
			rec.line()
		}
	}
}

// expected is how many messages the consumers of this run get of those that
// were sent.
func (e *env) expected(f *fleet) uint64 {
	var n uint64
	for _, p := range f.producers {
		n += p.sent.Load()
	}
	if e.o.exchange != "" && (e.o.kind == "fanout" || e.o.key != "") { // every queue gets every message
		n *= uint64(len(e.o.queues()))
	}
	return n
}

func presetFanout(o *options) { o.size, o.kind, o.consumers = 100, "fanout", 0 }

// runFanout is a run with a fanout exchange and a consumer for each queue.
func (e *env) runFanout(ctx context.Context) (*Report, error) {
	o := e.o
	if o.exchange == "" {
		o.exchange = o.id
	}
	if o.pattern == "" && len(o.queue) == 0 {
		o.pattern, o.from, o.to = o.id+".%d", 1, 10
	}
	if o.consumers == 0 {
		o.consumers = len(o.queues())
	}
	return e.runLoad(ctx)
}
