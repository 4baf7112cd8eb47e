package perf

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/wire"
)

func presetUpheaval(o *options) {
	o.what, o.parallel, o.many, o.rate, o.time = "declare", 16, []int{10_000}, 5000, 5*time.Second
	o.producers, o.kind = 10, "topic"
}

func (o *options) upheavalFlags(s *flagSet) {
	s.text("what", "WHAT", "declare (queues, each bound to an exchange), exclusive (queues of one connection, which closes) or unbind (a queue with many bindings is deleted beside publishers) (declare)", &o.what)
	s.count("n number", "N", "how many queues, or bindings (10000)", &o.many[0], 1)
	s.count("parallel", "N", "of declare: requests at a time, each on a connection of its own (16)", &o.parallel, 1)
	s.list("f flag", "FLAG", "of declare: persistent: durable queues, on a durable exchange", &o.flags)
	s.list("qa queue-args", "KEY=VALUE,...", "of declare: arguments of the queues", &o.queueArgs)
	s.count("x producers", "N", "of unbind: publishers, each with an exchange of its own (10)", &o.producers, 1)
	s.text("t type", "TYPE", "of unbind: type of the exchanges (topic)", &o.kind)
	s.number("r rate", "N", "of unbind: messages a second of all publishers (5000)", &o.rate)
	s.seconds("z time", "SECONDS", "of unbind: how long before the deletion, and after it (5)", &o.time)
}

// runUpheaval changes much of what there is.
func (e *env) runUpheaval(ctx context.Context) (*Report, error) {
	switch e.o.what {
	case "declare":
		return e.runDeclare(ctx)
	case "exclusive":
		return e.runExclusive(ctx)
	case "unbind":
		return e.runUnbind(ctx)
	}
	return nil, usagef("--what %s: there are declare, exclusive and unbind", e.o.what)
}

// runDeclare declares queues and binds each of them.
func (e *env) runDeclare(ctx context.Context) (*Report, error) {
	o := e.o
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	r, top, n := e.report(), o.topology(), o.many[0]
	x := o.id + ".x"
	name := func(k int) string { return o.id + "." + strconv.Itoa(k) }
	connect := func(i int) (*conn, error) { return dial(ctx, o.target(i), 4<<10) }
	end := func(c *conn) { _ = c.close() }
	first, err := connect(0)
	if err != nil {
		return nil, err
	}
	defer first.close()
	if err := first.call(&wire.ExchangeDeclare{Exchange: x, Type: o.kind, Durable: top.durable}, &wire.ExchangeDeclareOk{}); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var latency Histogram
	a := m.read()
	err = workers(o.parallel, 0, n, connect, func(c *conn, k int) error {
		at := now()
		if err := c.call(top.queue(name(k)), &wire.QueueDeclareOk{}); err != nil {
			return err
		}
		between := now()
		err := c.call(&wire.QueueBind{Queue: name(k), Exchange: x, RoutingKey: "key." + strconv.Itoa(k)}, &wire.QueueBindOk{})
		mu.Lock()
		latency.Add(between - at)
		latency.Add(now() - between)
		mu.Unlock()
		return err
	}, end)
	if err != nil {
		return r, err
	}
	b := m.read()
	wall := b.at.Sub(a.at).Seconds()
	r.Seconds, r.Call = round(wall, 2), latency.Summary()
	r.figure("commands_rate", float64(2*n)/wall, "declares and binds a second")
	costs := m.costs(a, b, uint64(2*n))
	r.Costs = &costs
	at := time.Now()
	err = workers(o.parallel, 0, n, connect, func(c *conn, k int) error {
		return c.call(&wire.QueueDelete{Queue: name(k)}, &wire.QueueDeleteOk{})
	}, end)
	r.figure("delete_rate", float64(n)/time.Since(at).Seconds(), "queues deleted a second, each with its binding")
	return r, errors.Join(err, first.call(&wire.ExchangeDelete{Exchange: x}, &wire.ExchangeDeleteOk{}))
}

// ahead is how many requests runExclusive and runUnbind send before they read the answers.
const ahead = 500

// inRuns makes n requests, many at a time.
func (c *conn) inRuns(n int, request func(k int) wire.Method, answer wire.Method) error {
	for from := 0; from < n; from += ahead {
		to := min(from+ahead, n)
		var out []byte
		for k := from; k < to; k++ {
			out = wire.AppendMethod(out, 1, request(k))
		}
		_ = c.nc.SetDeadline(time.Now().Add(callTimeout))
		if _, err := c.nc.Write(out); err != nil {
			return err
		}
		for range to - from {
			if err := c.await(answer); err != nil {
				return err
			}
		}
	}
	return c.nc.SetDeadline(time.Time{})
}

// runExclusive declares exclusive queues on one connection, and says how long after the end of that all of them are gone, as a second
// connection sees it, to another node where there are several.
func (e *env) runExclusive(ctx context.Context) (*Report, error) {
	o := e.o
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	r, n := e.report(), o.many[0]
	name := func(k int) string { return o.id + "." + strconv.Itoa(k) }
	owner, err := dial(ctx, o.target(0), 64<<10)
	if err != nil {
		return nil, err
	}
	defer owner.nc.Close()
	other, err := dial(ctx, o.target(len(o.targets)-1), 4<<10)
	if err != nil {
		return nil, err
	}
	defer other.close()
	at := time.Now()
	err = owner.inRuns(n, func(k int) wire.Method { return &wire.QueueDeclare{Queue: name(k), Exclusive: true} }, &wire.QueueDeclareOk{})
	if err != nil {
		return nil, err
	}
	r.figure("declare_rate", float64(n)/time.Since(at).Seconds(), "queues declared a second, on one connection")
	a := m.read()
	at = time.Now()
	if err := owner.close(); err != nil {
		return r, err
	}
	r.figure("close_s", time.Since(at).Seconds(), "seconds until the closing connection has its answer")
	// The last ones first: one look each, if they go in order.
	step := max(n/100, 1)
	for k := n - 1; k >= 0; k -= step {
		for there := true; there; {
			if there, err = other.has(name(k)); err != nil {
				return r, err
			}
			if there && time.Since(at) > 2*callTimeout {
				return r, fmt.Errorf("queue %d is still there after %v", k, time.Since(at))
			}
		}
	}
	r.figure("gone_s", time.Since(at).Seconds(), "seconds until another connection finds none of a hundred of them")
	costs := m.costs(a, m.read(), uint64(n))
	r.Costs = &costs
	return r, nil
}

// has reports whether a queue is there, somebody else's exclusive one among them.
func (c *conn) has(queue string) (bool, error) {
	err := c.call(&wire.QueueDeclare{Queue: queue, Passive: true}, &wire.QueueDeclareOk{})
	var closed *brokerError
	if errors.As(err, &closed) && (closed.code == 404 || closed.code == 405) {
		return closed.code == 405, c.call(&wire.ChannelOpen{}, &wire.ChannelOpenOk{})
	}
	return err == nil, err
}

// runUnbind binds a queue many times to the exchanges of publishers, deletes it, and compares the times of confirms before and after
// the request.
func (e *env) runUnbind(ctx context.Context) (r *Report, err error) {
	o := e.o
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	r = e.report()
	n, big := o.many[0], o.id+".big"
	c, err := dial(ctx, o.target(0), 64<<10)
	if err != nil {
		return nil, err
	}
	defer c.close()
	steady := make([]*steady, o.producers)
	exchange := func(i int) string { return o.id + ".x" + strconv.Itoa(i) }
	for i := range steady {
		x, q := exchange(i), o.id+".q"+strconv.Itoa(i)
		err = errors.Join(
			c.call(&wire.ExchangeDeclare{Exchange: x, Type: o.kind}, &wire.ExchangeDeclareOk{}),
			c.call(&wire.QueueDeclare{Queue: q}, &wire.QueueDeclareOk{}),
			c.call(&wire.QueueBind{Queue: q, Exchange: x, RoutingKey: "a.steady.key"}, &wire.QueueBindOk{}))
		if err != nil {
			return nil, err
		}
		defer func() {
			err = errors.Join(err, c.call(&wire.QueueDelete{Queue: q}, &wire.QueueDeleteOk{}), c.call(&wire.ExchangeDelete{Exchange: x}, &wire.ExchangeDeleteOk{}))
		}()
		if steady[i], err = newSteady(ctx, o.target(i), x, "a.steady.key", o.rate/float64(len(steady))); err != nil {
			return nil, err
		}
		defer steady[i].conn.nc.Close()
	}
	if err := c.call(&wire.QueueDeclare{Queue: big}, &wire.QueueDeclareOk{}); err != nil {
		return nil, err
	}
	at := time.Now()
	err = c.inRuns(n, func(k int) wire.Method {
		return &wire.QueueBind{Queue: big, Exchange: exchange(k % len(steady)), RoutingKey: fmt.Sprintf("w%d.w%d.w%d", k%7, k%101, k)}
	}, &wire.QueueBindOk{})
	if err != nil {
		return nil, err
	}
	r.figure("bind_rate", float64(n)/time.Since(at).Seconds(), "bindings made a second, on one connection")
	var failure atomic.Pointer[error]
	var all sync.WaitGroup
	for i, s := range steady {
		all.Go(func() { s.run(time.Duration(i) * time.Second / time.Duration(o.rate)) })
		go func() {
			if err := s.read(); err != nil && !s.halted.Load() {
				failure.CompareAndSwap(nil, &err)
			}
		}()
	}
	pause(ctx, min(time.Second, o.time)) // not measured
	a := m.read()
	begin := now()
	pause(ctx, o.time)
	struck := now()
	if err := c.call(&wire.QueueDelete{Queue: big}, &wire.QueueDeleteOk{}); err != nil {
		return r, err
	}
	r.figure("delete_ms", float64(now()-struck)/1e6, "ms until the deletion was answered")
	pause(ctx, o.time-time.Duration(now()-struck))
	last := now()
	pause(ctx, 200*time.Millisecond)
	b := m.read()
	for _, s := range steady {
		s.halted.Store(true)
	}
	all.Wait()
	if err := failure.Load(); err != nil {
		return r, *err
	}
	var before, after Histogram
	open := 0
	for _, s := range steady {
		open += s.collect(&before, begin, struck)
		open += s.collect(&after, struck, last)
	}
	r.Seconds, r.Confirm = round(float64(last-begin)/1e9, 2), after.Summary()
	x, y := before.Summary(), after.Summary()
	if x == nil || y == nil {
		return r, errors.New("nothing was confirmed")
	}
	r.figure("confirm_p999_before_us", x.P999, "us from sending to the confirm, 99.9 %, before the deletion")
	r.figure("confirm_p999_after_us", y.P999, "the same as long from the deletion on")
	r.figure("confirm_p999_ratio", y.P999/x.P999, "of the two")
	r.figure("confirm_max_after_us", y.Max, "the longest")
	r.figure("unconfirmed", float64(open), "messages without a confirm at the end")
	costs := m.costs(a, b, before.Count()+after.Count())
	r.Costs = &costs
	return r, nil
}

// steady is a publisher that keeps to a rate and remembers when each message was due and confirmed.
type steady struct {
	conn   *conn
	bytes  []byte // one publish
	gap    float64
	halted atomic.Bool

	mu        sync.Mutex
	sent      []int64 // when each message was due
	confirmed []int64 // 0: not yet
	first     int     // the first that is not
}

func newSteady(ctx context.Context, to target, exchange, key string, rate float64) (*steady, error) {
	c, err := dial(ctx, to, 4<<10)
	if err != nil {
		return nil, err
	}
	if err := c.call(&wire.ConfirmSelect{}, &wire.ConfirmSelectOk{}); err != nil {
		c.nc.Close()
		return nil, err
	}
	s := &steady{conn: c, gap: 1e9 / rate}
	s.bytes = wire.AppendMethod(s.bytes, 1, &wire.BasicPublish{Exchange: []byte(exchange), RoutingKey: []byte(key)})
	s.bytes = wire.AppendContent(s.bytes, 1, nil, make([]byte, 16), c.frameMax)
	return s, nil
}

// run publishes until it is halted. What was due and could not be sent counts from when it was due.
func (s *steady) run(after time.Duration) {
	start := now() + int64(after)
	for k := 0; !s.halted.Load(); k++ {
		due := start + int64(float64(k)*s.gap)
		if d := due - now(); d > 0 {
			time.Sleep(time.Duration(d))
		}
		if late := now(); late-due < 2*int64(tick) {
			due = late // the sleep was too long, which is not the broker's doing
		}
		s.mu.Lock()
		s.sent, s.confirmed = append(s.sent, due), append(s.confirmed, 0)
		s.mu.Unlock()
		if _, err := s.conn.nc.Write(s.bytes); err != nil {
			return // the reader says why
		}
	}
}

// read notes confirms until the connection ends.
func (s *steady) read() error {
	for {
		f, is, err := s.conn.next()
		if err == nil && !is {
			err = s.conn.fill()
		}
		if err != nil {
			return err
		}
		if !is || f.Type != wire.FrameMethod {
			continue
		}
		switch id, args, _ := wire.SplitMethod(f.Payload); id {
		case wire.IDBasicAck:
			var m wire.BasicAck
			if err := m.Decode(args); err != nil {
				return err
			}
			s.note(int(m.DeliveryTag), m.Multiple, now())
		case wire.IDBasicNack:
			return errors.New("a publish was nacked")
		default:
			if err := s.conn.closed(f); err != nil {
				return err
			}
		}
	}
}

func (s *steady) note(tag int, multiple bool, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tag > len(s.sent) {
		return
	}
	if !multiple {
		s.confirmed[tag-1] = at
		return
	}
	for ; s.first < tag; s.first++ {
		if s.confirmed[s.first] == 0 {
			s.confirmed[s.first] = at
		}
	}
}

// collect adds the times of messages that were due in a span, and says how many have no confirm.
func (s *steady) collect(h *Histogram, from, to int64) (open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, at := range s.sent {
		switch {
		case at < from || at >= to:
		case s.confirmed[i] == 0:
			open++
		default:
			h.Add(s.confirmed[i] - at)
		}
	}
	return open
}
