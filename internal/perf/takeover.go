package perf

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"holdfast/internal/wire"
)

func presetTakeover(o *options) {
	o.many, o.parallel, o.flags = []int{1000}, 16, []string{"persistent"}
	o.queueArgs = []string{"x-queue-type=quorum"}
	o.signal, o.faultAt = "KILL", 3*time.Second
}

func (o *options) takeoverFlags(s *flagSet) {
	s.count("n number", "N", "how many queues (1000)", &o.many[0], 1)
	s.count("parallel", "N", "requests at a time, each on a connection of its own (16)", &o.parallel, 1)
	s.list("qa queue-args", "KEY=VALUE,...", "arguments of the queues (x-queue-type=quorum)", &o.queueArgs)
	o.faultFlags(s)
}

// runTakeover declares queues in turn on the nodes of --declare-uri, lets the
// fault happen, and asks those of --uri about each queue until it has an answer,
// which a quorum queue gives when it has a leader.
func (e *env) runTakeover(ctx context.Context) (*Report, error) {
	o := e.o
	strike, mend, err := o.wound()
	if err != nil {
		return nil, err
	}
	n := o.many[0]
	r, top := e.report(), o.topology()
	name := func(k int) string { return o.id + "." + strconv.Itoa(k) }
	end := func(c *conn) { _ = c.close() }
	m := newMeter(o.survivors(), o.beside)
	defer m.stop()
	at := time.Now()
	err = workers(max(o.parallel, len(o.declarer)), 0, n,
		func(i int) (*conn, error) { return dial(ctx, o.declarer[i%len(o.declarer)], 4<<10) },
		func(c *conn, k int) error { return c.call(top.queue(name(k)), &wire.QueueDeclareOk{}) }, end)
	if err != nil {
		return nil, err
	}
	r.figure("declare_rate", float64(n)/time.Since(at).Seconds(), "queues declared a second")
	pause(ctx, o.faultAt)

	var mu sync.Mutex
	var answers []time.Duration
	failed := 0
	a := m.read()
	struck := time.Now()
	if err := strike(); err != nil {
		return nil, err
	}
	connect := func(i int) (*conn, error) { return dial(ctx, o.target(i), 4<<10) }
	type asker struct {
		c *conn
		i int
	}
	err = workers(o.parallel, 0, n,
		func(i int) (*asker, error) { c, err := connect(i); return &asker{c, i}, err },
		func(w *asker, k int) error {
			for {
				err := w.c.call(&wire.QueueDeclare{Queue: name(k), Passive: true}, &wire.QueueDeclareOk{})
				mu.Lock()
				if err == nil {
					answers = append(answers, time.Since(struck))
				} else {
					failed++
				}
				mu.Unlock()
				if err == nil {
					return nil
				}
				if err := interrupted(ctx); err != nil {
					return err
				}
				w.c.nc.Close() // the channel is gone
				if w.c, err = connect(w.i); err != nil {
					return err
				}
			}
		}, func(w *asker) { end(w.c) })
	if err != nil {
		return nil, err
	}
	b := m.read()
	slices.Sort(answers)
	r.figure("half_s", answers[n/2].Seconds(), "s from the fault until half of the queues had answered")
	r.figure("all_s", answers[n-1].Seconds(), "s until all had")
	r.figure("failed", float64(failed), "questions that had to be asked again")
	costs := m.costs(a, b, 0)
	r.Costs = &costs
	if mend != nil {
		r.failed(mend())
	}
	err = workers(o.parallel, 0, n, connect, func(c *conn, k int) error {
		return c.call(&wire.QueueDelete{Queue: name(k)}, &wire.QueueDeleteOk{})
	}, end)
	return r, err
}
