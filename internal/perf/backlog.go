package perf

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

func presetBacklog(o *options) { o.fill, o.size, o.settle = []int{1000_000}, 100, 2*time.Second }

// backlogFlags are of a queue that is filled and drained.
func (o *options) backlogFlags(s *flagSet) {
	s.counts("messages", "N,...", "messages, over all producers; with several numbers, memory is read at each (1M)", &o.fill)
	s.seconds("settle", "SECONDS", "rest before memory is read (2)", &o.settle)
	s.count("x producers", "N", "producers (1)", &o.producers, 1)
	s.count("y consumers", "N", "consumers that drain (1)", &o.consumers, 1)
	o.queueFlags(s)
	s.count("c confirm", "N", "most unconfirmed messages of a producer (no confirms)", &o.confirm, -1)
	s.seconds("ct confirm-timeout", "SECONDS", "how long to wait for the last confirms (30)", &o.confirmBy)
	s.count("batch", "N", "most messages in one write (256, and 128 KiB)", &o.batch, 1)
	o.consumeFlags(s)
	o.metricsFlag(s)
}

// backlogWait bounds filling and draining.
const backlogWait = 30 * time.Minute

// runBacklog fills queues that nobody consumes, reads the broker's memory at
// each of the numbers, and drains them.
func (e *env) runBacklog(ctx context.Context) (*Report, error) {
	o := e.o
	steps := slices.Clone(o.fill)
	slices.Sort(steps)
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	top := o.topology()
	if err := o.prepare(ctx, top); err != nil {
		return nil, err
	}
	pause(ctx, min(time.Second, o.settle))
	r := e.report()
	logged, err := e.synced(ctx)
	r.failed(err)
	b := &backlog{env: e, report: r, meter: m, top: top, none: m.read()}
	for _, n := range steps {
		if err = b.fill(ctx, n); err != nil {
			break
		}
	}
	b.sum(logged)
	if err == nil {
		err = e.drainBacklog(ctx, r, top, b.total, m)
	}
	r.failed(err)
	r.failed(o.cleanUp(ctx, top))
	return r, nil
}

// backlog is queues that are being filled. It is for one goroutine.
type backlog struct {
	env    *env
	report *Report
	meter  *meter
	top    *topology
	none   reading // before the first message
	total  uint64  // messages in the queues

	first   reading // at the first number
	firstAt uint64
	took    time.Duration
	confirm Histogram
}

// fill publishes until the queues hold n messages, waits for rest, and reads
// the memory.
func (b *backlog) fill(ctx context.Context, n int) error {
	e, o := b.env, b.env.o
	o.sends = (n - int(b.total) + o.producers - 1) / o.producers
	if o.sends <= 0 {
		return nil
	}
	total := b.total + uint64(o.sends*o.producers)
	f := newFleet(o)
	if err := f.connect(ctx, b.top, o.producers); err != nil {
		return err
	}
	rec := newRecorder(f, o, e.out)
	start := b.meter.read()
	f.send()
	filling, cancel := context.WithTimeout(ctx, backlogWait)
	e.follow(filling, f, rec, backlogWait, true)
	err := e.filled(filling, f, b.top, total)
	cancel()
	end := b.meter.read()
	rec.sample()
	b.confirm.Merge(&rec.confirm)
	b.took += end.at.Sub(start.at)
	costs := b.meter.costs(start, end, total-b.total)
	b.report.Costs = &costs
	f.halt()
	f.close()
	for _, err := range f.errors() {
		b.report.failed(err)
	}
	if err != nil {
		return err
	}
	b.total = total
	e.say("the queues hold %d messages", total)
	pause(ctx, o.settle)
	b.look(n)
	return nil
}

// look reads the memory with n messages in the queues.
func (b *backlog) look(n int) {
	if len(b.env.o.pids) == 0 {
		return
	}
	r, full := b.report, b.meter.read()
	each := func(a, b, messages uint64) float64 { return (float64(b) - float64(a)) / float64(messages) }
	at := "_at_" + strconv.Itoa(n)
	r.figure("anonymous_mib"+at, float64(full.anonymous)/(1<<20), "MiB of anonymous memory in all")
	r.figure("anonymous_bytes_each"+at, each(b.none.anonymous, full.anonymous, b.total), "bytes of anonymous memory for each waiting message, from none")
	r.figure("resident_bytes_each"+at, each(b.none.resident, full.resident, b.total), "bytes of resident memory for each waiting message, from none")
	if b.firstAt == 0 {
		b.first, b.firstAt = full, b.total
		return
	}
	r.figure("anonymous_bytes_slope"+at, each(b.first.anonymous, full.anonymous, b.total-b.firstAt), "bytes of anonymous memory for each waiting message since the first number")
}

// sum reports how fast filling was.
func (b *backlog) sum(logged synced) {
	r, wall := b.report, b.took.Seconds()
	if b.total == 0 || wall == 0 {
		return
	}
	all := &Rate{b.total, round(float64(b.total)/wall, 0)}
	r.Seconds, r.Sent, r.Confirm = round(wall, 2), all, b.confirm.Summary()
	if b.env.o.confirm >= 0 {
		r.Confirmed = all
	}
	after, err := b.env.synced(context.Background())
	r.failed(err)
	r.perSync(logged, after, wall)
}

// filled waits until the queues hold everything.
func (e *env) filled(ctx context.Context, f *fleet, top *topology, total uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if missing := f.settle(e.o.confirmBy); missing > 0 {
		return fmt.Errorf("%d publishes were not confirmed", missing)
	}
	c, err := dial(ctx, e.o.target(0), 4<<10)
	if err != nil {
		return err
	}
	defer c.close()
	for {
		n, err := top.depth(c)
		if err != nil || n >= total {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the queues hold %d of %d messages", n, total)
		case <-f.failed:
			return fmt.Errorf("the queues hold %d of %d messages", n, total)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (e *env) drainBacklog(ctx context.Context, r *Report, top *topology, total uint64, m *meter) error {
	g := newFleet(e.o)
	a := m.read()
	defer g.close()
	if err := g.consume(ctx, top.queues, e.o.consumers); err != nil {
		return err
	}
	last, at := uint64(0), time.Now()
	for last < total {
		time.Sleep(2 * time.Millisecond)
		if have := g.received(); have != last {
			last, at = have, time.Now()
		}
		if time.Since(at) > backlogWait/30 || ctx.Err() != nil {
			return fmt.Errorf("only %d of %d messages came back", last, total)
		}
	}
	b := m.read()
	wall := b.at.Sub(a.at).Seconds()
	r.Received = &Rate{last, round(float64(last)/wall, 0)}
	r.figure("drain_seconds", wall, "s until the last message was received")
	c := m.costs(a, b, last)
	if c.Broker != nil {
		r.figure("drain_us_per_msg", c.Broker.Micro, "us of broker CPU for each drained message")
		r.figure("drain_other_cores", c.Broker.OtherCores, "cores of other work while draining")
	}
	return nil
}
