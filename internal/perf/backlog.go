package perf

import (
	"context"
	"fmt"
	"time"
)

func presetBacklog(o *options) { o.messages, o.size, o.settle = 1000_000, 100, 2*time.Second }

// backlogFlags are of a queue that is filled and drained.
func (o *options) backlogFlags(s *flagSet) {
	s.count("messages", "N", "messages, over all producers (1M)", &o.messages, 1)
	s.seconds("settle", "SECONDS", "rest before memory is read (2)", &o.settle)
	s.count("x producers", "N", "producers (1)", &o.producers, 1)
	s.count("y consumers", "N", "consumers that drain (1)", &o.consumers, 1)
	o.queueFlags(s)
	s.count("c confirm", "N", "most unconfirmed messages of a producer (no confirms)", &o.confirm, -1)
	s.seconds("ct confirm-timeout", "SECONDS", "how long to wait for the last confirms (30)", &o.confirmBy)
	s.count("batch", "N", "most messages in one write (256, and 128 KiB)", &o.batch, 1)
	o.consumeFlags(s)
}

// backlogWait bounds filling and draining.
const backlogWait = 30 * time.Minute

// runBacklog fills queues that nobody consumes, reads the broker's memory, and
// drains them.
func (e *env) runBacklog(ctx context.Context) (*Report, error) {
	o := e.o
	o.sends = (o.messages + o.producers - 1) / o.producers
	total := uint64(o.sends * o.producers)
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	top := o.topology()
	if !o.predeclared {
		if err := top.declare(ctx, o.target(0)); err != nil {
			return nil, err
		}
	}
	pause(ctx, min(time.Second, o.settle))
	r := e.report()
	f := newFleet(o)
	if err := f.connect(ctx, top, o.producers); err != nil {
		return nil, err
	}
	rec := newRecorder(f, o, e.out)
	a := m.read()
	f.send()
	ctx, cancel := context.WithTimeout(ctx, backlogWait)
	defer cancel()
	e.follow(ctx, f, rec, backlogWait, true)
	err := e.filled(ctx, f, top, total)
	b := m.read()
	rec.sample()
	rec.report(r, b.at.Sub(a.at).Seconds())
	r.Confirm = rec.confirm.Summary()
	costs := m.costs(a, b, total)
	r.Costs = &costs
	f.halt()
	if err == nil {
		e.say("the queues hold %d messages", total)
		pause(ctx, o.settle)
		full := m.read()
		if len(o.pids) > 0 {
			per := func(a, b uint64) float64 { return (float64(b) - float64(a)) / float64(total) }
			r.figure("anonymous_bytes_per_msg", per(a.anonymous, full.anonymous), "bytes of anonymous memory for each waiting message")
			r.figure("resident_bytes_per_msg", per(a.resident, full.resident), "bytes of resident memory for each waiting message")
		}
		err = e.drainBacklog(ctx, r, top, total, m)
	}
	f.close()
	for _, err := range f.errors() {
		r.failed(err)
	}
	r.failed(err)
	if !o.predeclared && !o.keep {
		r.failed(top.remove(context.WithoutCancel(ctx), o.target(0)))
	}
	return r, nil
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
