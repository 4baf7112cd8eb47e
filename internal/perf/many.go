package perf

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/wire"
)

// manyFlags are of scenarios that make a number of things and count what they
// cost at rest.
func (o *options) manyFlags(s *flagSet) {
	s.counts("n number", "N,...", "how many; with several numbers, memory is read at each (1000)", &o.many)
	s.count("parallel", "N", "requests at a time, each on a connection of its own (connections 8, queues 16)", &o.parallel, 1)
	s.seconds("settle", "SECONDS", "rest before memory is read, and as long again to see the CPU at rest (3)", &o.settle)
}

func (o *options) manyQueueFlags(s *flagSet) {
	o.manyFlags(s)
	s.list("f flag", "FLAG", "persistent: durable queues", &o.flags)
	s.list("qa queue-args", "KEY=VALUE,...", "arguments of the queues", &o.queueArgs)
}

func (o *options) churnFlags(s *flagSet) {
	s.text("what", "WHAT", "connection (open, one channel, close), channel (open, close) or queue (declare exclusive, delete) (connection)", &o.what)
	s.count("parallel", "N", "workers (4)", &o.parallel, 1)
	s.seconds("z time", "SECONDS", "how long (5)", &o.time)
}

// workers runs do(i) for the numbers from first up to last on o.parallel
// goroutines, each with something of its own that open makes. It stops at the
// first error.
func workers[T any](n, first, last int, open func(i int) (T, error), do func(T, int) error, end func(T)) error {
	var next atomic.Int64
	next.Store(int64(first))
	var once sync.Once
	var failure error
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			mine, err := open(i)
			for err == nil {
				k := int(next.Add(1)) - 1
				if k >= last {
					break
				}
				err = do(mine, k)
			}
			if err != nil {
				once.Do(func() { failure = err })
				next.Store(int64(last))
				return
			}
			end(mine)
		})
	}
	all.Wait()
	return failure
}

// step is one count of a scenario of many things.
type step struct {
	n    int
	rest reading
}

// climb makes things up to each of the numbers and reads memory and idle CPU
// there.
func (e *env) climb(ctx context.Context, r *Report, m *meter, things string, grow func(first, last int) error) error {
	counts := slices.Clone(e.o.many)
	slices.Sort(counts)
	pause(ctx, min(time.Second, e.o.settle))
	steps := []step{{0, m.read()}}
	for _, n := range counts {
		before := steps[len(steps)-1]
		a := m.read()
		if err := grow(before.n, n); err != nil {
			return err
		}
		b := m.read()
		wall := b.at.Sub(a.at).Seconds()
		at := "_at_" + strconv.Itoa(n)
		r.figure("rate"+at, float64(n-before.n)/wall, things+" a second")
		costs := m.costs(a, b, uint64(n-before.n))
		r.Costs = &costs
		e.say("%d %s, %.0f a second", n, things, float64(n-before.n)/wall)
		pause(ctx, e.o.settle)
		rest := m.read()
		steps = append(steps, step{n, rest})
		if len(e.o.pids) == 0 {
			continue
		}
		each := func(from step, value func(reading) uint64) float64 {
			return (float64(value(rest)) - float64(value(from.rest))) / 1024 / float64(n-from.n)
		}
		resident, anonymous := func(r reading) uint64 { return r.resident }, func(r reading) uint64 { return r.anonymous }
		r.figure("anonymous_kib_each"+at, each(steps[0], anonymous), "KiB of anonymous memory for each, from none")
		r.figure("resident_kib_each"+at, each(steps[0], resident), "KiB of resident memory for each, from none")
		if before.n > 0 {
			r.figure("anonymous_kib_slope"+at, each(before, anonymous), "KiB of anonymous memory for each since the last step")
		}
		if e.o.settle == 0 {
			continue
		}
		pause(ctx, e.o.settle)
		idle := m.costs(rest, m.read(), 0)
		r.figure("idle_cores"+at, idle.Broker.Cores, "cores of the broker at rest")
	}
	return nil
}

// runConnections opens idle connections with a channel each.
func (e *env) runConnections(ctx context.Context) (*Report, error) {
	o := e.o
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	r := e.report()
	open := make([]*conn, slices.Max(o.many))
	none := func(int) (struct{}, error) { return struct{}{}, nil }
	err := e.climb(ctx, r, m, "connections", func(first, last int) error {
		return workers(o.parallel, first, last, none, func(_ struct{}, k int) (err error) {
			open[k], err = dial(ctx, o.target(k), 1<<10)
			return err
		}, func(struct{}) {})
	})
	for _, c := range open {
		if c != nil {
			c.nc.Close()
		}
	}
	return r, err
}

// runQueues declares queues and deletes them.
func (e *env) runQueues(ctx context.Context) (*Report, error) {
	o := e.o
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	r := e.report()
	top := o.topology()
	name := func(k int) string { return o.id + "." + strconv.Itoa(k) }
	connect := func(i int) (*conn, error) { return dial(ctx, o.target(i), 4<<10) }
	end := func(c *conn) { _ = c.close() }
	var mu sync.Mutex
	var latency Histogram
	call := func(c *conn, request, answer wire.Method) error {
		at := now()
		err := c.call(request, answer)
		mu.Lock()
		latency.Add(now() - at)
		mu.Unlock()
		return err
	}
	err := e.climb(ctx, r, m, "queues", func(first, last int) error {
		return workers(o.parallel, first, last, connect, func(c *conn, k int) error {
			return call(c, top.queue(name(k)), &wire.QueueDeclareOk{})
		}, end)
	})
	if err != nil {
		return r, err
	}
	r.Call = latency.Summary()
	at := time.Now()
	all := slices.Max(o.many)
	err = workers(o.parallel, 0, all, connect, func(c *conn, k int) error {
		return c.call(&wire.QueueDelete{Queue: name(k)}, &wire.QueueDeleteOk{})
	}, end)
	r.figure("delete_rate", float64(all)/time.Since(at).Seconds(), "queues deleted a second")
	return r, err
}

// runChurn opens and closes the same kind of thing for a while.
func (e *env) runChurn(ctx context.Context) (*Report, error) {
	o := e.o
	once, err := e.churn()
	if err != nil {
		return nil, err
	}
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	r := e.report()
	var mu sync.Mutex
	var latency Histogram
	var failed atomic.Int64
	ctx, cancel := context.WithTimeout(ctx, o.time)
	defer cancel()
	a := m.read()
	var all sync.WaitGroup
	for i := range o.parallel {
		all.Go(func() {
			c, err := dial(context.WithoutCancel(ctx), o.target(i), 4<<10)
			if err != nil {
				failed.Add(1)
				return
			}
			defer c.close()
			for k := 0; k == 0 || ctx.Err() == nil; k++ { // one turn at least, however short the time
				at := now()
				if err := once(c, i, k); err != nil {
					if failed.Add(1) == 1 {
						mu.Lock()
						r.failed(err)
						mu.Unlock()
					}
					return
				}
				mu.Lock()
				latency.Add(now() - at)
				mu.Unlock()
			}
		})
	}
	<-ctx.Done()
	all.Wait()
	b := m.read()
	wall := b.at.Sub(a.at).Seconds()
	r.Seconds, r.Call = round(wall, 2), latency.Summary()
	r.figure("rate", float64(latency.Count())/wall, o.what+"s a second")
	r.figure("failed", float64(failed.Load()), "workers that ended with an error")
	costs := m.costs(a, b, latency.Count())
	r.Costs = &costs
	return r, nil
}

// churn is what one turn of the churn does, on a worker's connection.
func (e *env) churn() (func(c *conn, worker, k int) error, error) {
	switch e.o.what {
	case "connection":
		return func(_ *conn, worker, _ int) error {
			to := e.o.target(worker)
			to.brief = true
			c, err := dial(context.Background(), to, 1<<10)
			if err != nil {
				return err
			}
			return c.close()
		}, nil
	case "channel":
		return func(c *conn, _, _ int) error {
			if err := c.call(&wire.ChannelClose{ReplyCode: 200}, &wire.ChannelCloseOk{}); err != nil {
				return err
			}
			return c.call(&wire.ChannelOpen{}, &wire.ChannelOpenOk{})
		}, nil
	case "queue":
		return func(c *conn, worker, k int) error {
			q := fmt.Sprintf("%s.%d.%d", e.o.id, worker, k)
			if err := c.call(&wire.QueueDeclare{Queue: q, Exclusive: true}, &wire.QueueDeclareOk{}); err != nil {
				return err
			}
			return c.call(&wire.QueueDelete{Queue: q}, &wire.QueueDeleteOk{})
		}, nil
	}
	return nil, usagef("--what %s: there are connection, channel and queue", e.o.what)
}
