package queuehost

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"holdfast/internal/queue"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
	"holdfast/internal/wire"
)

func timed(def QueueDef, after time.Duration) QueueDef {
	def.Settings = &Settings{ConsumerTimeout: after}
	return def
}

// ownTimeout are arguments of a consumer with a timeout of its own.
func ownTimeout(ms int64) wire.Table {
	return wire.Table(nil).AppendValue(timeoutArgument, wire.ValueOf(ms))
}

// hereAndThere runs a test on queues of this node, and of another one.
func hereAndThere(t *testing.T, defs []QueueDef, test func(t *testing.T, r *rig, pass func(time.Duration))) {
	for _, far := range []bool{false, true} {
		t.Run(fmt.Sprintf("far=%v", far), func(t *testing.T) {
			rig := newRig
			if far {
				rig = newFarRig
			}
			r := rig(t, newFakeLog(), defs, newest)
			test(t, r, func(d time.Duration) {
				r.clock.Advance(d)
				r.host(7).reg.Tick()
				r.settle()
			})
		})
	}
}

// R400: a consumer that holds a message for longer than it may is cancelled, and the message goes to others, on time. What else
// it holds stays its own until that is over, too; and what it says of the message afterwards has no effect.
func TestHeldTooLong(t *testing.T) {
	hereAndThere(t, []QueueDef{timed(durable(7), time.Second)}, func(t *testing.T, r *rig, pass func(time.Duration)) {
		h := r.queue(7)
		slow, quick := &sink{}, &sink{}
		id := h.Attach(unlimited(0), slow, func(queue.ConsumerID, error) {})
		publish(h, nil, true, "a")
		r.settle()
		pass(600 * time.Millisecond)
		publish(h, nil, true, "b", "c")
		r.settle()
		pass(399 * time.Millisecond)
		want(t, "cancelled after 0.999 s", slow.cancelled, nil)
		pass(2 * time.Millisecond)
		if !IsDeliveryTimeout(slow.cancelled) {
			t.Fatalf("cancelled: %v", slow.cancelled)
		}
		want(t, "timeouts", r.host(7).reg.Timeouts(), uint64(1))
		h.Attach(unlimited(1), quick, func(queue.ConsumerID, error) {})
		r.settle()
		want(t, "the other one", quick.bodies(), []string{"a*"})

		h.Settle(id, ids(1, 1), queue.Ack) // late
		h.Settle(id, ids(2, 2), queue.Ack)
		r.settle()
		want(t, "unacked", r.host(7).m.Unacked(), uint64(2))
		slow.cancelled = nil
		pass(600 * time.Millisecond)
		want(t, "told again", slow.cancelled, nil)
		want(t, "ready", r.host(7).m.Ready(), uint64(1))
		want(t, "unacked", r.host(7).m.Unacked(), uint64(1))
		h.Detach(id, nil)
		r.settle()
		want(t, "of the one that left", len(r.host(7).aside.overdue.parting), 0)
	})
}

// R401: a consumer's own timeout beats the queue's; one that does not acknowledge has none.
func TestOwnTimeout(t *testing.T) {
	hereAndThere(t, []QueueDef{timed(durable(7), time.Second), durable(8)}, func(t *testing.T, r *rig, pass func(time.Duration)) {
		attach := func(h *Handle, s *sink, change func(*ConsumerSpec)) {
			spec := unlimited(1)
			change(&spec)
			h.Attach(spec, s, func(queue.ConsumerID, error) {})
			publish(h, nil, true, "a")
			r.settle()
		}
		var long, short, noAck, never, only sink
		attach(r.queue(7), &long, func(s *ConsumerSpec) { s.Arguments = ownTimeout(5000) })
		attach(r.queue(7), &short, func(s *ConsumerSpec) { s.Arguments = ownTimeout(500) })
		attach(r.queue(7), &noAck, func(s *ConsumerSpec) { s.NoAck, s.Arguments = true, ownTimeout(100) })
		attach(r.queue(8), &never, func(*ConsumerSpec) {})
		attach(r.queue(8), &only, func(s *ConsumerSpec) { s.Arguments = ownTimeout(300) })
		told := func() (names string) {
			for _, x := range []struct {
				name string
				s    *sink
			}{{"long", &long}, {"short", &short}, {"noAck", &noAck}, {"never", &never}, {"only", &only}} {
				if IsDeliveryTimeout(x.s.cancelled) {
					names += x.name + " "
				}
			}
			return names
		}
		for _, x := range []struct {
			after time.Duration
			told  string
		}{{299, ""}, {2, "only "}, {198, "only "}, {2, "short only "}, {4498, "short only "}, {2, "long short only "}, {3600_000, "long short only "}} {
			pass(x.after * time.Millisecond)
			want(t, fmt.Sprintf("told after %v more", x.after*time.Millisecond), told(), x.told)
		}
	})
}

// What the catalog says later holds for consumers that come later.
func TestTimeoutIsFixedAtAttach(t *testing.T) {
	hereAndThere(t, []QueueDef{timed(durable(7), time.Second)}, func(t *testing.T, r *rig, pass func(time.Duration)) {
		var first, second sink
		r.queue(7).Attach(unlimited(1), &first, func(queue.ConsumerID, error) {})
		r.settle()
		r.host(7).reg.SetSettings(7, Settings{ConsumerTimeout: 100 * time.Millisecond})
		r.settle()
		r.queue(7).Attach(unlimited(1), &second, func(queue.ConsumerID, error) {})
		publish(r.queue(7), nil, true, "a", "b")
		r.settle()
		pass(101 * time.Millisecond)
		want(t, "the first one", first.cancelled, nil)
		want(t, "the second one", IsDeliveryTimeout(second.cancelled), true)
		pass(900 * time.Millisecond)
		want(t, "the first one, later", IsDeliveryTimeout(first.cancelled), true)
	})
}

// A getter that holds a message for too long is told so, and may go on.
func TestGetterHoldsTooLong(t *testing.T) {
	hereAndThere(t, []QueueDef{timed(durable(7), time.Second)}, func(t *testing.T, r *rig, pass func(time.Duration)) {
		h := r.queue(7)
		s := &sink{}
		id := h.Getter(ConsumerSpec{Channel: 3}, s)
		var got []string
		get := func() {
			h.Get(id, false, func(d Delivery, _ uint64, ok bool, err error) {
				got = append(got, fmt.Sprintf("%d %s %v %v %v", d.ID, d.Message.Head, d.Redelivered, ok, err))
			})
			r.settle()
		}
		publish(h, nil, true, "a")
		r.settle()
		get()
		pass(1001 * time.Millisecond)
		want(t, "told", fmt.Sprint(s.cancelled), "PRECONDITION_FAILED - delivery acknowledgement on channel 3 timed out. Timeout value used: 1000 ms. This timeout value can be configured, see consumers doc guide to learn more")
		get()
		want(t, "gets", got, []string{"1 a false true <nil>", "2 a true true <nil>"})
	})
}

// A queue in which nothing is out for too long is not looked at, and nothing is written for it.
func TestNothingIsOverdue(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{timed(durable(7), time.Second)}, newest)
	h := r.queue(7)
	s := &sink{}
	id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	for i := range uint64(20) { // always something out, and never for long
		publish(h, nil, true, "x")
		r.settle()
		if i > 0 {
			h.Settle(id, ids(i, i), queue.Ack)
		}
		r.clock.Advance(300 * time.Millisecond)
		r.reg.Tick()
		r.settle()
	}
	h.Settle(id, ids(20, 20), queue.Ack)
	r.settle()
	want(t, "cancelled", s.cancelled, nil)
	n := len(r.log.records)
	for range 3 {
		r.clock.Advance(time.Hour)
		r.reg.Tick()
		r.settle()
	}
	want(t, "entries of a queue of which nothing is out", len(r.log.records), n)
	want(t, "times to look", r.host(7).due, int64(0))
}

// holding is a consumer that keeps what it gets.
type holding struct {
	mu    sync.Mutex
	more  *sync.Cond
	got   []string
	ended error
}

func newHolding() *holding {
	c := &holding{}
	c.more = sync.NewCond(&c.mu)
	return c
}

func (c *holding) Deliver(ds []Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range ds {
		c.got = append(c.got, whole(d.Message))
	}
	c.more.Broadcast()
}

func (c *holding) Cancelled(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = reason
	c.more.Broadcast()
}

func (c *holding) Drained(uint32) {}
func (c *holding) Wake()          {}

func (c *holding) wait(is func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !is() {
		c.more.Wait()
	}
}

// leader is the member of a queue that leads.
func (x *trio) leader(id seglog.GroupID) *host {
	for {
		for _, v := range x.nodes {
			if h := v.reg.member(id); h.lead.leaderNode() == v.id {
				return h
			}
		}
	}
}

// move has another member lead, and returns when the one that did knows that.
func (x *trio) move(id seglog.GroupID) {
	h := x.leader(id)
	for from := h.reg.self(); h.lead.leaderNode() == from; {
		done := make(chan struct{})
		h.group.TransferLeaderTo(from%uint64(len(x.nodes))+1, func(error) { close(done) })
		<-done
	}
}

// R402: whoever comes to lead a quorum queue goes on to look: it knows since when each delivery is out. A consumer whose end
// the leader before has not come to tell is told by the next one.
func TestHeldTooLongOverLeaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		timeout int64 // ms
		before  opKind
	}{
		{"not over yet", 300, 0},
		{"over, and more is held", 3600_000, opCancel},
		{"over, and nothing more is held", 3600_000, opDetach},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTrioWith(t, 3, func(o *Options) { o.Level = func() uint16 { return 2 } },
				func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
			defer x.close(t)
			q := x.nodes[0].reg.Get(7)
			s := newHolding()
			attached := make(chan error, 1)
			spec := unlimited(0)
			spec.Arguments = ownTimeout(c.timeout)
			q.Attach(spec, s, func(_ queue.ConsumerID, err error) { attached <- err })
			if err := <-attached; err != nil {
				t.Fatal(err)
			}
			publish(q, nil, true, "a")
			s.wait(func() bool { return len(s.got) == 1 })
			if c.before != 0 { // what the queue knows when it has ended a consumer, and its client does not
				h, done := x.leader(7), make(chan struct{})
				h.group.Do(func() {
					h.handle.put(op{kind: c.before, consumer: h.m.LastConsumer(), call: &call{done: func() { close(done) }}})
				})
				<-done
			}
			x.move(7)
			s.wait(func() bool { return s.ended != nil })
			if !IsDeliveryTimeout(s.ended) {
				t.Fatal(s.ended)
			}
		})
	}
}

// R402: so is what is left to a consumer that its client has cancelled, which nobody attaches again.
func TestCancelledHoldsTooLongOverLeaders(t *testing.T) {
	x := newTrioWith(t, 3, func(o *Options) { o.Level = func() uint16 { return 2 } },
		func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	q := x.nodes[0].reg.Get(7)
	first, second := newHolding(), newHolding()
	attached := make(chan error, 1)
	spec := unlimited(0)
	spec.Arguments = ownTimeout(300)
	id := q.Attach(spec, first, func(_ queue.ConsumerID, err error) { attached <- err })
	if err := <-attached; err != nil {
		t.Fatal(err)
	}
	publish(q, nil, true, "a")
	first.wait(func() bool { return len(first.got) == 1 })
	cancelled := make(chan struct{})
	q.Cancel(id, func() { close(cancelled) })
	<-cancelled
	x.move(7)
	q.Attach(unlimited(0), second, func(_ queue.ConsumerID, err error) { attached <- err })
	if err := <-attached; err != nil {
		t.Fatal(err)
	}
	second.wait(func() bool { return len(second.got) == 1 })
	want(t, "told", first.ended, nil)
}
