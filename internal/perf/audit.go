package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/wire"
)

func presetAudit(o *options) {
	o.producers, o.consumers, o.messages, o.confirm, o.prefetch, o.ackEvery, o.size = 4, 4, 200_000, 500, 200, 50, 100
	o.flags = []string{"persistent"}
}

// auditFlags are of the scenarios that check every message.
func (o *options) auditFlags(s *flagSet) {
	s.count("messages", "N", "messages, over all producers (audit 200k; recovery 300k confirmed ones before the kill)", &o.messages, 1)
	o.checkedFlags(s)
	s.count("drop-consumers", "N", "cut the consumers' connections N times on the way (0)", &o.drops, 0)
}

// checkedFlags are of all whose messages are numbered.
func (o *options) checkedFlags(s *flagSet) {
	s.count("x producers", "N", "producers, each with a queue of its own unless queues are named (audit 4, others 1)", &o.producers, 1)
	s.count("y consumers", "N", "consumers (audit 4, others 1)", &o.consumers, 1)
	o.queueFlags(s)
	s.count("c confirm", "N", "most unconfirmed messages of a producer (audit 500, recovery 1000, failover 200)", &o.confirm, 1)
	s.number("r rate", "RATE", "messages a second of each producer (unlimited, failover 2000)", &o.rate)
	s.count("batch", "N", "most messages in one write (256, and 128 KiB)", &o.batch, 1)
	s.count("A multi-ack-every", "N", "acknowledge every N messages with one frame (50, failover each by itself)", &o.ackEvery, 0)
	s.count("q qos", "N", "prefetch (200)", &o.prefetch, 0)
	s.seconds("idle", "SECONDS", "time without a delivery after which the rest counts as lost (audit 5, recovery 15, failover 8)", &o.idle)
}

// flight is a publish that waits for its confirm.
type flight struct {
	number uint64
	done   bool
}

// sender is a producer that gives every message a number, keeps what is not
// confirmed, and publishes it again after a nack or on a new connection.
type sender struct {
	e         *env
	ledger    *ledger
	number    int
	to        route
	limit     uint64
	reconnect bool

	mu        sync.Mutex // the ledger's mutex is taken inside
	room      sync.Cond
	flights   []flight // by tag; a power of two long
	low, next uint64
	inflight  int
	again     []uint64
	given     uint64
	err       error
	nacks     uint64
	lost      int   // connections
	begun     int64 // when the first message was due; the rate counts from it
	conn      *conn
	ended     bool // stop as soon as possible
}

func newSender(e *env, l *ledger, number int, to route, limit uint64) *sender {
	size := 1
	for size < 4*e.o.confirm {
		size *= 2
	}
	s := &sender{e: e, ledger: l, number: number, to: to, limit: limit, flights: make([]flight, size)}
	s.room.L = &s.mu
	return s
}

// run publishes until everything is confirmed, stop is called, or the
// connection is lost and may not be opened again.
func (s *sender) run(ctx context.Context) error {
	for try := 0; ; try++ {
		c, err := s.open(ctx, try)
		if err == nil {
			err = s.session(c)
			c.nc.Close()
		}
		if err == nil || !s.reconnect || ctx.Err() != nil {
			return err
		}
		s.mu.Lock()
		s.lost++
		s.mu.Unlock()
		pause(ctx, 20*time.Millisecond)
	}
}

func (s *sender) open(ctx context.Context, try int) (*conn, error) {
	c, err := dial(ctx, s.e.o.target(s.number+try), 64<<10)
	if err != nil {
		return nil, err
	}
	if err := c.call(&wire.ConfirmSelect{}, &wire.ConfirmSelectOk{}); err != nil {
		c.nc.Close()
		return nil, err
	}
	return c, nil
}

// session publishes on one connection.
func (s *sender) session(c *conn) error {
	s.mu.Lock()
	s.low, s.next, s.inflight, s.err, s.conn = 1, 1, 0, nil, c
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.stop(s.read(c), false)
	}()
	m := s.e.o.message()
	m.frameMax = c.frameMax
	err := s.publish(c, newRing(m, []route{s.to}, s.e.o.batch))
	c.nc.Close()
	<-done
	s.mu.Lock()
	for t := s.low; t < s.next; t++ {
		if f := s.flights[t&uint64(len(s.flights)-1)]; !f.done {
			s.again = append(s.again, f.number)
		}
	}
	slices.Sort(s.again)
	s.mu.Unlock()
	return err
}

// stop ends the session with the error; for ever if the whole run is over.
func (s *sender) stop(err error, ended bool) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	if err != nil && s.conn != nil {
		s.conn.nc.Close() // a write may wait for the broker
	}
	s.ended = s.ended || ended
	s.room.Broadcast()
	s.mu.Unlock()
}

var errDone = errors.New("everything is confirmed")

// publish sends until everything is confirmed (nil) or the session ends.
func (s *sender) publish(c *conn, r *ring) error {
	if s.begun == 0 {
		s.begun = now()
	}
	for {
		n, err := s.fillRing(r, s.begun)
		switch {
		case err == errDone:
			return nil
		case err != nil:
			return err
		case n == 0:
			time.Sleep(tick)
			continue
		}
		if _, err := c.nc.Write(r.take(n)); err != nil {
			return err
		}
	}
}

// fillRing waits for room and puts messages into the ring's next publishes.
func (s *sender) fillRing(r *ring, start int64) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		fresh := (s.limit == 0 || s.given < s.limit) && !s.ended
		switch {
		case s.err != nil:
			return 0, s.err
		case len(s.again) == 0 && !fresh && s.inflight == 0:
			return 0, errDone
		case s.inflight < s.e.o.confirm && s.next-s.low < uint64(len(s.flights)) && (fresh || len(s.again) > 0):
			return s.fillNow(r, start, fresh), nil
		}
		s.room.Wait()
	}
}

func (s *sender) fillNow(r *ring, start int64, fresh bool) (n int) {
	at := now()
	most := min(r.most(), s.e.o.confirm-s.inflight, len(s.flights)-int(s.next-s.low))
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	for ; n < most; n++ {
		var number uint64
		switch {
		case len(s.again) > 0:
			number, s.again = s.again[0], s.again[1:]
			s.ledger.accounts[s.number].again.set(number)
		case !fresh || s.limit > 0 && s.given >= s.limit:
			return n
		case s.e.o.rate > 0 && float64(s.given) > float64(at-start)/1e9*s.e.o.rate:
			return n
		default:
			number = s.ledger.publish(s.number)
			s.given++
		}
		r.stamp(n, at, messageID(s.number, number))
		s.flights[s.next&uint64(len(s.flights)-1)] = flight{number: number}
		s.next++
		s.inflight++
	}
	return n
}

// read handles confirms until the connection ends.
func (s *sender) read(c *conn) error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		if err := s.buffered(c, now()); err != nil {
			return err
		}
	}
}

func (s *sender) buffered(c *conn, at int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.room.Broadcast()
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	for {
		f, ok, err := c.next()
		if err != nil || !ok {
			return err
		}
		if f.Type != wire.FrameMethod {
			continue
		}
		id, args, _ := wire.SplitMethod(f.Payload)
		if (id == wire.IDBasicAck || id == wire.IDBasicNack) && len(args) >= 9 {
			s.answer(binary.BigEndian.Uint64(args), args[8]&1 != 0, id == wire.IDBasicAck, at)
		} else if err := c.closed(f); err != nil {
			return err
		}
	}
}

// answer settles the tags of a confirm; a nacked message is published again.
func (s *sender) answer(tag uint64, multiple, ack bool, at int64) {
	if tag >= s.next || tag < s.low {
		return
	}
	first := tag
	if multiple {
		first = s.low
	}
	for ; first <= tag; first++ {
		f := &s.flights[first&uint64(len(s.flights)-1)]
		if f.done {
			continue
		}
		f.done = true
		s.inflight--
		if ack {
			s.ledger.confirm(s.number, f.number, at)
		} else {
			s.nacks++
			s.again = append(s.again, f.number)
		}
	}
	for s.low < s.next && s.flights[s.low&uint64(len(s.flights)-1)].done {
		s.low++
	}
}

// receiver is a consumer that tells the ledger, and connects again when its
// connection is cut.
type receiver struct {
	e      *env
	ledger *ledger
	number int
	queues []string
	halted atomic.Bool
	mu     sync.Mutex
	now    *consumer
	failed error
	lost   int           // connections that nobody cut
	first  chan struct{} // closed when it consumes, or has ended
}

func (v *receiver) run(ctx context.Context) {
	begun := sync.OnceFunc(func() { close(v.first) })
	defer begun()
	f := newFleet(v.e.o)
	for try := 0; !v.halted.Load() && ctx.Err() == nil; try++ {
		k, err := f.consumer(ctx, v.e.o.producers+v.number+try, v.queues)
		if err == nil {
			o := make(order, len(v.ledger.accounts))
			k.observe = func(got []delivery) { v.ledger.deliver(got, o) }
			v.mu.Lock()
			v.now = k
			v.mu.Unlock()
			begun()
			if v.halted.Load() {
				k.halt()
			}
			err = k.run()
			k.conn.nc.Close()
		}
		v.mu.Lock()
		if err != nil && v.failed == nil {
			v.failed = err
		}
		if err != nil && !v.halted.Load() {
			v.lost++
		}
		v.mu.Unlock()
		pause(ctx, 20*time.Millisecond)
	}
}

// cut closes the connection; run opens another unless halt came before.
func (v *receiver) cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.now != nil {
		v.now.halt()
	}
}

func (v *receiver) halt() {
	v.halted.Store(true)
	v.cut()
}

// receivers starts the consumers of a checked run.
func (e *env) receivers(ctx context.Context, l *ledger, queues []string) (all []*receiver, stop func()) {
	var running sync.WaitGroup
	for i := range e.o.consumers {
		v := &receiver{e: e, ledger: l, number: i, queues: share(queues, i, e.o.consumers), first: make(chan struct{})}
		all = append(all, v)
		running.Go(func() { v.run(ctx) })
	}
	return all, func() {
		for _, v := range all {
			v.halt()
		}
		running.Wait()
	}
}

// auditQueues are the queues of a checked run. If none are named, every
// producer has one, so that with as many consumers (the default) each queue has
// one consumer, and two messages that change places show.
func (o *options) auditQueues() []string {
	if o.pattern != "" || len(o.queue) > 0 || o.producers < 2 {
		return o.queues()
	}
	var all []string
	for i := range o.producers {
		all = append(all, o.id+"."+strconv.Itoa(i))
	}
	return all
}

// runAudit sends numbered messages and checks what comes back.
func (e *env) runAudit(ctx context.Context) (*Report, error) {
	o := e.o
	top := o.topology()
	top.queues = o.auditQueues()
	if err := o.prepare(ctx, top); err != nil {
		return nil, err
	}
	m := newMeter(o.pids, o.beside)
	defer m.stop()
	r := e.report()
	l := newLedger(o.producers)
	consumers, stop := e.receivers(ctx, l, top.queues)
	a := m.read()
	var sending sync.WaitGroup
	var mu sync.Mutex
	var senders []*sender
	for i := range o.producers {
		s := newSender(e, l, i, route{"", top.queues[i%len(top.queues)]}, uint64((o.messages+o.producers-1)/o.producers))
		s.reconnect = true
		senders = append(senders, s)
		sending.Go(func() {
			err := s.run(ctx)
			mu.Lock()
			r.failed(err)
			mu.Unlock()
		})
	}
	sent := make(chan struct{})
	go func() { sending.Wait(); close(sent) }()
	unhook := context.AfterFunc(ctx, func() {
		for _, s := range senders {
			s.stop(ctx.Err(), true)
		}
	})
	defer unhook()
	for range o.drops {
		pause(ctx, 200*time.Millisecond)
		for _, v := range consumers {
			v.cut()
		}
	}
	e.watch(l, sent)
	e.await(ctx, l)
	stop()
	b := m.read()
	l.verdict(r)
	var nacks uint64
	for _, s := range senders {
		nacks += s.nacks
	}
	wall := b.at.Sub(a.at).Seconds()
	r.Seconds = round(wall, 2)
	r.Received = &Rate{l.delivered, round(float64(l.delivered)/wall, 0)}
	r.figure("nacks", float64(nacks), "publishes that the broker refused")
	r.figure("confirm_gap_ms", float64(l.confirmGap)/1e6, "ms, the longest time without a confirm")
	r.figure("delivery_gap_ms", float64(l.deliveryGap)/1e6, "ms, the longest time without a delivery")
	costs := m.costs(a, b, l.delivered)
	r.Costs = &costs
	r.failed(o.cleanUp(ctx, top))
	return r, nil
}

// watch prints progress until over is closed.
func (e *env) watch(l *ledger, over <-chan struct{}) {
	t := time.NewTicker(e.o.interval)
	defer t.Stop()
	for {
		select {
		case <-over:
			return
		case <-t.C:
			confirmed, missing, delivered := l.state()
			e.say("id: %s, confirmed: %d, delivered: %d, confirmed and not delivered yet: %d", e.o.id, confirmed, delivered, missing)
		}
	}
}

// await waits until everything confirmed was delivered and nothing more comes
// for half a second, or until nothing comes at all for the idle time.
func (e *env) await(ctx context.Context, l *ledger) {
	_, _, last := l.state()
	for at := time.Now(); ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
		_, missing, delivered := l.state()
		if delivered != last {
			last, at = delivered, time.Now()
		}
		quiet := time.Since(at)
		if quiet > e.o.idle || missing == 0 && quiet > 500*time.Millisecond {
			return
		}
	}
}

// interrupted says why a checked run cannot be judged.
func interrupted(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the run was interrupted: %w", err)
	}
	return nil
}
