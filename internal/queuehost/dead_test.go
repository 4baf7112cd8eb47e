package queuehost

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/amqperr"
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

// R541: a queue that holds dead letters is not empty, and a purge leaves them.
func TestDeadLettersAreNotNothing(t *testing.T) {
	hereAndThere(t, []QueueDef{set(durable(7), queue.Settings{DeadLetter: queue.DeadLetterHeld})}, func(t *testing.T, r *rig, _ func(time.Duration)) {
		h := r.queue(7)
		id := h.Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {})
		publish(h, nil, true, "a", "b")
		r.settle()
		h.Settle(id, ids(1, 2), queue.Discard)
		h.Detach(id, nil)
		r.settle()
		var purged uint64
		h.Purge(func(n uint64, err error) { purged = n })
		r.settle()
		want(t, "purged and left", []uint64{purged, h.Stats().Dead}, []uint64{0, 2})
		code := func() (code uint16) {
			h.Seal(false, true, func(_ uint64, err error) {
				var e *amqperr.Error
				if errors.As(err, &e) {
					code = uint16(e.Code)
				}
			})
			r.settle()
			return code
		}
		want(t, "deletion", code(), uint16(amqperr.PreconditionFailed))
		r.host(7).handle.Bury(ids(1, 2))
		r.settle()
		want(t, "deletion without letters", code(), uint16(0))
	})
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

// R617: where dead letters are, the queue's explanation has what its owner knows of them.
func TestWhyLettersAreHeldIsExplained(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), queue.Settings{DeadLetter: queue.DeadLetterHeld})}, newest)
	r.host(7).reg.SetOwner(&owner{held: []string{"there is nobody"}})
	h, s := r.queue(7), &sink{}
	publish(h, nil, true, "a")
	id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	r.settle()
	h.Settle(id, ids(1, 1), queue.Discard)
	r.settle()
	r.explains(7, "On their way, or held until they can arrive: 1 dead letter.")
	r.explains(7, "there is nobody")
}
