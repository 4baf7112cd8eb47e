package perf

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"holdfast/internal/wire"
)

func presetDelay(o *options) {
	o.fill, o.size, o.settle, o.rate, o.time, o.confirm = []int{1000_000}, 100, 5*time.Second, 10_000, 10*time.Second, 256
}

func (o *options) delayFlags(s *flagSet) {
	s.counts("messages", "N", "messages that wait for an hour to ten years while the others come due (1M)", &o.fill)
	s.seconds("settle", "SECONDS", "rest before memory is read (5)", &o.settle)
	s.number("r rate", "RATE", "messages that come due a second (10000)", &o.rate)
	s.seconds("z time", "SECONDS", "for how long they do (10)", &o.time)
	s.count("c confirm", "N", "most unconfirmed messages of the publisher of those that come due (256)", &o.confirm, 1)
	o.queueFlags(s)
}

const (
	delayLead  = time.Second      // after the last was published, the first comes due at the earliest
	delayPace  = 5_000            // so many are published a second at least, it is taken for granted
	delayLimit = 30 * time.Second // for the last one
	tenYears   = 315_360_000_000  // ms
)

// runDelay fills an exchange that delays with messages for years, reads the broker's memory, and then sees how late messages come that
// are due at a rate.
func (e *env) runDelay(ctx context.Context) (*Report, error) {
	o := e.o
	top := o.topology()
	top.durable = true
	top.exchange, top.kind = o.id, "x-delayed-message"
	top.says = wire.NewTable(map[string]any{"x-delayed-type": "direct"})
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	if err := top.declare(ctx, o.declarer); err != nil {
		return nil, err
	}
	r := e.report()
	r.failed(e.delayed(ctx, r, m, top))
	r.failed(o.cleanUp(ctx, top))
	return r, nil
}

func (e *env) delayed(ctx context.Context, r *Report, m *meter, top *topology) error {
	o := e.o
	p, err := newDelayer(ctx, o, top)
	if err != nil {
		return err
	}
	defer p.conn.close()
	n := o.fill[0]
	// What the first messages bring about is not for each of them.
	if err := p.publish(ctx, n/20, 4096, func(int) int64 { return 3_600_000 + rand.Int64N(tenYears-3_600_000) }); err != nil {
		return err
	}
	pause(ctx, o.settle)
	before, start := m.read(), time.Now()
	if err := p.publish(ctx, n-n/20, 4096, func(int) int64 { return 3_600_000 + rand.Int64N(tenYears-3_600_000) }); err != nil {
		return err
	}
	r.figure("fill_rate", float64(n-n/20)/time.Since(start).Seconds(), "messages with a delay of years confirmed a second")
	pause(ctx, o.settle)
	after := m.read()
	if len(o.pids) > 0 {
		r.figure("anonymous_bytes_each", (float64(after.anonymous)-float64(before.anonymous))/float64(n-n/20), "bytes of anonymous memory for each of them but the first 5 %")
		r.figure("anonymous_mib", float64(after.anonymous)/(1<<20), "MiB of anonymous memory in all")
	}
	e.say("%d messages wait", n)
	count := int(o.rate * o.time.Seconds())
	c, err := newLateness(ctx, o, top, count)
	if err != nil {
		return err
	}
	defer c.conn.nc.Close()
	first := now() + int64(delayLead) + int64(count)*int64(time.Second)/delayPace
	err = p.publish(ctx, count, o.confirm, func(i int) int64 {
		due := first + int64(float64(i)/o.rate*1e9)
		return max((due-now())/1e6, 1)
	})
	if err != nil {
		return err
	}
	if spare := first - now(); spare < 0 {
		return fmt.Errorf("publishing took %v too long: the first messages were due before the last were published", time.Duration(-spare))
	}
	a := m.read()
	if err := c.wait(ctx, time.Duration(first-now())+o.time+delayLimit); err != nil {
		return err
	}
	costs := m.costs(a, m.read(), uint64(count))
	r.Costs = &costs
	r.Received = &Rate{uint64(count), round(o.rate, 0)}
	r.Latency = c.late.Summary()
	r.figure("late_ms_p50", float64(c.late.Quantile(0.5))/1e6, "ms after a message was due that it came")
	r.figure("late_ms_p99", float64(c.late.Quantile(0.99))/1e6, "the same")
	r.figure("late_ms_max", float64(c.late.Quantile(1))/1e6, "the same")
	r.figure("early", float64(c.early), "messages that came before they were due")
	return nil
}

// delayer publishes messages with a delay and reads the confirms.
type delayer struct {
	conn    *conn
	top     *topology
	body    []byte
	sent    uint64
	settled uint64
}

func newDelayer(ctx context.Context, o *options, top *topology) (*delayer, error) {
	c, err := dial(ctx, o.target(0), 64<<10)
	if err != nil {
		return nil, err
	}
	p := &delayer{conn: c, top: top, body: make([]byte, o.size)}
	return p, c.call(&wire.ConfirmSelect{}, &wire.ConfirmSelectOk{})
}

// publish sends n messages, at most window of which are not confirmed, and waits for the confirms. delay is in ms. A body has the time at which
// its message is due.
func (p *delayer) publish(ctx context.Context, n, window int, delay func(i int) int64) error {
	var out []byte
	for i := 0; i < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		out = out[:0]
		for k := 0; k < 64 && i < n; k++ {
			ms := delay(i)
			binary.BigEndian.PutUint64(p.body, uint64(now()+ms*1e6))
			out = wire.AppendMethod(out, 1, &wire.BasicPublish{Exchange: []byte(p.top.exchange), RoutingKey: []byte(p.top.keyOf(p.top.queues[i%len(p.top.queues)]))})
			out = wire.AppendContentHeader(out, 1, wire.NewProperties(wire.PropertySet{DeliveryMode: 2, Headers: wire.NewTable(nil).Append("x-delay", ms)}), uint64(len(p.body)))
			out = wire.AppendBody(out, 1, p.body, p.conn.frameMax)
			i++
			p.sent++
		}
		if _, err := p.conn.nc.Write(out); err != nil {
			return err
		}
		if err := p.confirmed(window); err != nil {
			return err
		}
	}
	return p.confirmed(0)
}

// confirmed waits until at most so many are not.
func (p *delayer) confirmed(window int) error {
	for p.sent-p.settled > uint64(window) {
		f, ok, err := p.conn.next()
		if err == nil && !ok {
			err = p.conn.fill()
		}
		if err != nil {
			return err
		}
		if !ok || f.Type != wire.FrameMethod {
			continue
		}
		id, args, _ := wire.SplitMethod(f.Payload)
		switch id {
		case wire.IDBasicAck:
			var m wire.BasicAck
			if err := m.Decode(args); err != nil {
				return err
			}
			if m.Multiple {
				p.settled = m.DeliveryTag
			} else {
				p.settled++
			}
		case wire.IDBasicNack:
			return fmt.Errorf("a message was not confirmed")
		default:
			if err := p.conn.closed(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// lateness consumes messages and sees how late they are.
type lateness struct {
	conn  *conn
	late  Histogram
	early int
	done  chan error
}

func newLateness(ctx context.Context, o *options, top *topology, count int) (*lateness, error) {
	c, err := dial(ctx, o.target(0), 256<<10)
	if err != nil {
		return nil, err
	}
	for _, q := range top.queues {
		if err := c.call(&wire.BasicConsume{Queue: q, NoAck: true}, &wire.BasicConsumeOk{}); err != nil {
			return nil, err
		}
	}
	l := &lateness{conn: c, done: make(chan error, 1)}
	go func() { l.done <- l.run(count) }()
	return l, nil
}

func (l *lateness) run(count int) error {
	for count > 0 {
		f, ok, err := l.conn.next()
		if err == nil && !ok {
			err = l.conn.fill()
		}
		if err != nil {
			return err
		}
		if !ok || f.Type != wire.FrameBody || len(f.Payload) < 8 {
			continue
		}
		late := now() - int64(binary.BigEndian.Uint64(f.Payload))
		if late < 0 {
			l.early++
		}
		l.late.Add(max(late, 0))
		count--
	}
	return nil
}

func (l *lateness) wait(ctx context.Context, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case err := <-l.done:
		return err
	case <-t.C:
		return fmt.Errorf("only %d messages came", l.late.Count())
	case <-ctx.Done():
		return ctx.Err()
	}
}
