package perf

import (
	"context"
	"fmt"
	"sync"
	"time"

	"holdfast/internal/wire"
)

// fleet is the producers and consumers of one run. Its methods are for one
// goroutine.
type fleet struct {
	o         *options
	producers []*producer
	consumers []*consumer
	sending   sync.WaitGroup // producers' run
	receiving sync.WaitGroup // consumers' run

	mu       sync.Mutex
	failures []error
	failed   chan struct{} // closed at the first failure
	sent     chan struct{} // closed when every producer has ended by itself
}

func newFleet(o *options) *fleet {
	return &fleet{o: o, failed: make(chan struct{}), sent: make(chan struct{})}
}

func (f *fleet) fail(who string, i int, err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failures) == 0 {
		close(f.failed)
	}
	f.failures = append(f.failures, fmt.Errorf("%s %d: %w", who, i, err))
}

func (f *fleet) errors() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failures
}

// consume connects n consumers to their share of the queues. Messages may come
// at once.
func (f *fleet) consume(ctx context.Context, queues []string, n int) error {
	for i := range n {
		k, err := f.consumer(ctx, f.o.producers+i, share(queues, i, n))
		if err != nil {
			return fmt.Errorf("consumer %d: %w", i, err)
		}
		f.consumers = append(f.consumers, k)
		f.receiving.Go(func() { f.fail("consumer", i, k.run()) })
	}
	return nil
}

func (f *fleet) consumer(ctx context.Context, i int, queues []string) (*consumer, error) {
	c, err := dial(ctx, f.o.target(i), 256<<10)
	if err != nil {
		return nil, err
	}
	k := &consumer{
		conn: c, autoAck: f.o.autoAck, ackEvery: f.o.ackEvery, rate: f.o.slow, limit: uint64(f.o.receives), full: make(chan struct{}),
	}
	if f.o.slow > 0 {
		c.buf = c.buf[:16<<10] // so that the broker feels it
	}
	if err := k.subscribe(queues, f.o.prefetch); err != nil {
		c.nc.Close()
		return nil, err
	}
	return k, nil
}

// subscribe sends basic.qos and basic.consume. All but the last subscription
// are sent without waiting, because deliveries may come between the answers.
func (k *consumer) subscribe(queues []string, prefetch int) error {
	if !k.autoAck && prefetch > 0 {
		if err := k.conn.call(&wire.BasicQos{PrefetchCount: uint16(prefetch)}, &wire.BasicQosOk{}); err != nil {
			return err
		}
	}
	var out []byte
	for _, q := range queues {
		out = wire.AppendMethod(out, 1, &wire.BasicConsume{Queue: q, NoAck: k.autoAck, NoWait: len(queues) > 1, ConsumerTag: tagOf(q, len(queues))})
	}
	if _, err := k.conn.nc.Write(out); err != nil {
		return err
	}
	if len(queues) > 1 {
		return nil
	}
	return k.conn.await(&wire.BasicConsumeOk{})
}

// tagOf is the consumer tag for a queue: the broker's choice where its answer
// is waited for.
func tagOf(queue string, queues int) string {
	if queues == 1 {
		return ""
	}
	return "perf " + queue[max(0, len(queue)-240):]
}

// connect makes the producers; send starts them.
func (f *fleet) connect(ctx context.Context, t *topology, n int) error {
	for i := range n {
		c, err := dial(ctx, f.o.target(i), 64<<10)
		if err != nil {
			return fmt.Errorf("producer %d: %w", i, err)
		}
		if f.o.confirm >= 0 {
			if err := c.call(&wire.ConfirmSelect{}, &wire.ConfirmSelectOk{}); err != nil {
				return fmt.Errorf("producer %d: %w", i, err)
			}
		}
		m := f.o.message()
		m.frameMax = c.frameMax
		var routes []route
		for _, q := range share(t.queues, i, n) {
			routes = append(routes, route{t.exchange, t.keyOf(q)})
		}
		if t.kind == "fanout" && t.exchange != "" {
			routes = routes[:1]
		}
		window := 0
		if f.o.confirm >= 0 {
			window = max(f.o.confirm, 1)
		}
		f.producers = append(f.producers, &producer{
			conn: c, ring: newRing(m, routes, f.o.batch), window: newWindow(window), number: i, limit: uint64(f.o.sends), rate: f.o.rate,
			ended: make(chan struct{}),
		})
	}
	return nil
}

// send starts the producers.
func (f *fleet) send() {
	for i, p := range f.producers {
		go p.read()
		f.sending.Go(func() { f.fail("producer", i, p.run()) })
	}
	go func() { f.sending.Wait(); close(f.sent) }()
}

// counts adds up what everyone has seen. The latencies since the last call go
// to the two histograms.
func (f *fleet) counts(latency, confirm *Histogram) (n counts) {
	for _, p := range f.producers {
		n.sent += p.sent.Load()
		n.add(p.window.collect(confirm))
	}
	for _, k := range f.consumers {
		n.add(k.collect(latency))
	}
	return n
}

// received is how many messages the consumers have.
func (f *fleet) received() (n uint64) {
	for _, k := range f.consumers {
		n += k.received.Load()
	}
	return n
}

// late is the most that a message went out after it was due.
func (f *fleet) late() (most int64) {
	for _, p := range f.producers {
		most = max(most, p.late.Load())
	}
	return most
}

// halt stops the producers, also those that the broker holds back.
func (f *fleet) halt() {
	for _, p := range f.producers {
		p.halt()
	}
	select {
	case <-f.sent:
		return
	case <-time.After(2 * time.Second):
	}
	for _, p := range f.producers {
		_ = p.conn.nc.SetWriteDeadline(time.Now())
	}
	<-f.sent
}

// settle waits until every publish is confirmed, and says how many are not.
func (f *fleet) settle(most time.Duration) (missing int) {
	for end := time.Now().Add(most); ; time.Sleep(2 * time.Millisecond) {
		missing = 0
		for _, p := range f.producers {
			missing += p.window.unanswered()
		}
		if missing == 0 || time.Now().After(end) {
			return missing
		}
		select {
		case <-f.failed:
			return missing
		default:
		}
	}
}

// drain waits until the consumers have n messages, or until nothing has come
// for a while.
func (f *fleet) drain(n uint64, idle time.Duration) {
	last, at := f.received(), time.Now()
	for last < n && time.Since(at) < idle {
		time.Sleep(5 * time.Millisecond)
		if have := f.received(); have != last {
			last, at = have, time.Now()
		}
	}
}

// close ends all connections: the producers' politely, so that the broker is at
// rest afterwards.
func (f *fleet) close() {
	for _, p := range f.producers {
		p.halted.Store(true)
	}
	var all sync.WaitGroup
	for _, p := range f.producers {
		all.Go(p.close)
	}
	all.Wait()
	for _, k := range f.consumers {
		k.halt()
	}
	f.receiving.Wait()
}
