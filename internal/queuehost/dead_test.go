package queuehost

import (
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/queue"
	"holdfast/internal/vfs"
	"holdfast/internal/wire"
)

// R480: the owner is told what dies in a queue that has no use for letters, by reason, once an entry; of a queue with letters it is told nothing
// but that there were too many.
func TestDropsAreTold(t *testing.T) {
	for _, c := range []struct {
		how  queue.DeadLetter
		want []string
	}{
		{queue.NoDeadLetter, []string{"2 of 7 dropped", "1 of 7 expired", "1 of 7 discarded", "1 of 7 exhausted"}},
		{queue.DeadLetterOnce, nil},
	} {
		hereAndThere(t, []QueueDef{set(durable(7), queue.Settings{MaxLength: queue.Most(1), DeliveryLimit: queue.Most(0), DeadLetter: c.how})},
			func(t *testing.T, r *rig, pass func(time.Duration)) {
				o := &owner{}
				r.host(7).reg.SetOwner(o)
				h, s := r.queue(7), &sink{}
				text := func(s string) { putBodies(h, nil, true, body(s, wire.PropertySet{})) }
				putBodies(h, nil, true, body("a", wire.PropertySet{}), body("b", wire.PropertySet{}), body("c", wire.PropertySet{Expiration: "1000"}))
				r.settle()
				pass(2 * time.Second)
				id := h.Attach(unlimited(1), s, func(queue.ConsumerID, error) {})
				for i, how := range []queue.Settlement{queue.Discard, queue.Requeue, queue.Ack} {
					text("d")
					r.settle()
					h.Settle(id, ids(uint64(i+1), uint64(i+1)), how)
					r.settle()
				}
				h.Detach(id, nil)
				r.settle()
				want(t, "told", o.dropped, c.want)
				if n := r.queue(7).Stats().Dead; c.how == queue.NoDeadLetter != (n == 0) {
					t.Errorf("dead: %d", n)
				}
				r.host(7).handle.Bury(ids(1, 100))
				r.settle()
				want(t, "told in the end", o.dropped, c.want)
				want(t, "dead in the end", r.queue(7).Stats().Dead, uint64(0))
			})
	}
}

// R480: dead letters that are too many are told, too.
func TestDropsOfTheDeadAreTold(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), queue.Settings{
		MaxLength: queue.Most(1), MaxBytes: queue.Most(1000), DeadLetter: queue.DeadLetterHeld, HeldMost: queue.Most(2),
	})}, newest)
	o := &owner{}
	r.host(7).reg.SetOwner(o)
	for range 5 {
		putBodies(r.queue(7), nil, true, body("abc", wire.PropertySet{}))
		r.settle()
	}
	want(t, "told", o.dropped, []string{"1 of 7 dead-dropped", "1 of 7 dead-dropped"})
	s := r.queue(7).Stats()
	want(t, "dead", []uint64{s.Dead, s.DeadBytes, s.Ready}, []uint64{2, 6, 1})
}

// dropCounter is an owner that counts what is dropped, on many nodes.
type dropCounter struct {
	owner
	n atomic.Uint64
}

func (c *dropCounter) Dropped(_ *Handle, _ queue.Reason, n uint64) { c.n.Add(n) }

// R480: of a quorum queue nobody but the leader tells.
func TestDropsOfAQuorumQueue(t *testing.T) {
	const count = 50
	c := &dropCounter{}
	x := newTrioWith(t, 3, func(o *Options) { o.Owner, o.Level = c, func() uint16 { return 2 } },
		func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, set(durable(7), queue.Settings{MaxLength: queue.Most(1)}))
	defer x.close(t)
	h := x.nodes[0].reg.Get(7)
	accepted := uint64(0)
	for range count {
		done := make(chan Outcome, 1)
		h.Publish([]Publish{{Message: body("a", wire.PropertySet{}), Persistent: true, Ticket: ticketFunc(func(o Outcome) { done <- o }), Seq: 1}})
		if <-done == Accepted {
			accepted++
		}
	}
	for same := false; !same; time.Sleep(time.Millisecond) { // until all have applied it
		same = true
		var first uint64
		for i, v := range x.nodes {
			at := make(chan uint64, 1)
			v.reg.Get(7).MemberState(func(index uint64, _ []byte) { at <- index })
			if n := <-at; i == 0 {
				first = n
			} else {
				same = same && n == first
			}
		}
	}
	// Whoever loses its lead under load may not tell of its last entries.
	if n := c.n.Load(); n == 0 || n > accepted-1 {
		t.Errorf("told of %d dropped messages, %d were accepted", n, accepted)
	}
}

type ticketFunc func(Outcome)

func (f ticketFunc) Settled(_, _ uint64, o Outcome) { f(o) }
