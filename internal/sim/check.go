package sim

import (
	"bytes"
	"fmt"

	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
)

// record is a message as the clients know it.
type record struct {
	id        uint64
	by        *client
	order     uint64 // of its publisher
	told      bool
	outcome   queuehost.Outcome
	delivered int
	holder    *consumer // has it and has not settled it
	done      bool      // acknowledged, or discarded
	doubt     bool      // whoever did that crashed, or was taken for dead: nobody may have heard of it
	doneBy    *node
	doneIn    uint64 // the incarnation of it
}

// checker compares what clients were told with what they got.
type checker struct {
	w       *World
	records []*record
	names   int
	order   map[*client]uint64
	cut     map[pair]bool  // links that do not come back by themselves
	since   map[pair]int64 // links that are down
	goneAt  map[pair]bool  // node and incarnation that was taken for dead
	stats   struct{ delivered, redelivered, accepted, unknown int }
}

func (k *checker) init(w *World) {
	*k = checker{w: w, order: map[*client]uint64{}, cut: map[pair]bool{}, since: map[pair]int64{}, goneAt: map[pair]bool{}}
}

func (k *checker) name() string {
	k.names++
	return fmt.Sprintf("consumer %d", k.names)
}

func (k *checker) publish(c *client) *record {
	k.order[c]++
	r := &record{id: uint64(len(k.records) + 1), by: c, order: k.order[c]}
	k.records = append(k.records, r)
	k.w.about(r, "published on node %d to queue %d", c.n.id, c.q)
	return r
}

// delivered checks a delivery, and returns its message.
func (k *checker) delivered(s *consumer, id uint64, d queuehost.Delivery) *record {
	w := k.w
	if id == 0 || id > uint64(len(k.records)) {
		w.failf("%s got message %d, which nobody has published", s.name, id)
		return nil
	}
	r := k.records[id-1]
	if r.by.q != s.c.q {
		w.failf("%s got message %d of another queue", s.name, id)
	}
	if s.over {
		w.about(r, "delivered to %s of node %d, which has left", s.name, s.c.n.id)
		return r
	}
	if h := r.holder; h != nil && !h.over && h != s {
		w.failf("%s got message %d, which %s holds", s.name, id, h.name)
	}
	if r.holder == s {
		w.failf("%s got message %d twice", s.name, id)
	}
	if r.delivered > 0 && !d.Redelivered {
		w.failf("%s got message %d again, and it does not say so", s.name, id)
	}
	if r.done && !r.doubt {
		w.failf("%s got message %d, which was settled", s.name, id)
	}
	if !d.Redelivered {
		if last := s.last[r.by]; r.order <= last {
			w.failf("%s got message %d of a publisher after a later one", s.name, id)
		}
		s.last[r.by] = r.order
	}
	w.about(r, "delivered as %d to %s of node %d, redelivered %v", d.ID, s.name, s.c.n.id, d.Redelivered)
	r.delivered++
	r.done, r.doubt = false, false
	k.stats.delivered++
	if d.Redelivered {
		k.stats.redelivered++
	}
	r.holder = s
	return r
}

// settled notes a settlement.
func (k *checker) settled(s *consumer, r *record, how queue.Settlement) {
	k.w.about(r, "settled by %s: %v", s.name, how)
	r.holder = nil
	if how != queue.Requeue {
		r.done, r.doneBy, r.doneIn = true, s.c.n, s.c.n.starts
	}
}

// back notes that a message goes back.
func (k *checker) back(s *consumer, r *record) {
	k.w.about(r, "goes back from %s", s.name)
	r.holder = nil
}

// crashed notes the end of a process.
func (k *checker) crashed(n *node) {
	for _, c := range n.clients {
		c.gone = true
		for _, s := range []*consumer{c.sub, c.getter} {
			if s != nil {
				s.over = true
			}
		}
	}
	for _, r := range k.records {
		if r.holder != nil && r.holder.c.n == n {
			r.holder = nil
		}
		if r.done && r.doneBy == n {
			r.doubt = true
		}
	}
}

// gone notes that a node is taken for dead: what its clients hold may go to others.
func (k *checker) gone(n *node) {
	p := pair{n.id, n.starts}
	for _, r := range k.records {
		if r.holder != nil && r.holder.c.n == n {
			r.holder = nil
		}
		if r.done && r.doneBy == n {
			r.doubt = true
		}
	}
	k.goneAt[p] = true
}

// finish heals everything, takes all that is left out of the queues, and compares.
func (w *World) finish() {
	if w.err != nil {
		return
	}
	w.trace("finish")
	w.calm = true
	for _, n := range w.nodes {
		n.paused = 0
		if !n.up {
			n.restart()
		}
	}
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if a.id < b.id && w.check.cut[pair{a.id, b.id}] {
				w.heal(a, b)
			}
		}
	}
	w.rest(400)
	for _, n := range w.nodes {
		for _, c := range n.clients {
			if len(c.under) > 0 {
				w.failf("node %d: %d publishes have no outcome", n.id, len(c.under))
			}
			if c.sub != nil {
				if c.sub.drained != 0 {
					w.failf("%s: %d drains have no answer", c.sub.name, c.sub.drained)
				}
				c.leave(false)
			}
			if s := c.getter; s != nil {
				for _, x := range s.held {
					w.check.back(s, x.r)
				}
				s.held, s.over = nil, true
				c.h.Detach(s.id, nil)
			}
		}
	}
	w.rest(20)
	w.drain()
	w.compare()
}

// rest lets time pass, with all that follows.
func (w *World) rest(ticks int) {
	for range ticks {
		w.settle()
		w.tick()
	}
	w.settle()
}

// drain consumes all that is left.
func (w *World) drain() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	for q := range w.defs {
		c := &client{n: n, q: q, h: n.handles[q], credit: n.reg.NewCredit(), under: map[uint64]*record{}}
		n.clients = append(n.clients, c)
		s := &consumer{c: c, name: w.check.name(), last: map[*client]uint64{}}
		s.id = c.h.Attach(queuehost.ConsumerSpec{Credit: queuehost.Unlimited, Prefetch: 50}, s, func(queue.ConsumerID, error) {})
		for range 2000 {
			w.settle()
			if len(s.held) == 0 {
				break
			}
			var ranges []queue.Range
			for _, x := range s.held {
				ranges = append(ranges, queue.Range{First: x.id, Last: x.id})
				w.check.settled(s, x.r, queue.Ack)
			}
			s.held = nil
			c.h.Settle(s.id, ranges, queue.Ack)
		}
		w.rest(5)
		answered := false
		c.h.Count(func(ready, _ uint64, err error) {
			answered = true
			if err != nil || ready != 0 {
				w.failf("queue %d: %d messages are ready at the end (%v)", q, ready, err)
			}
		})
		w.rest(5)
		if !answered {
			w.failf("queue %d does not answer at the end", q)
		}
		if st := c.h.Stats(); st.Unacked != 0 {
			c.h.Explain(func(x queuehost.Explanation) {
				w.failf("queue %d: %d messages are held by nobody who is there: %v", q, st.Unacked, x.Lines)
			})
			w.rest(5)
		}
	}
}

// compare says what is missing, and whether the members are equal.
func (w *World) compare() {
	for _, r := range w.check.records {
		switch {
		case r.told && r.outcome == queuehost.Accepted:
			w.check.stats.accepted++
			if !r.done {
				w.failf("message %d was accepted and is lost (delivered %d times)", r.id, r.delivered)
				return
			}
		case r.told:
			w.check.stats.unknown++
		}
	}
	for q := range w.defs {
		var index uint64
		var state []byte
		for i, n := range w.nodes {
			n.handles[q].MemberState(func(at uint64, blob []byte) {
				if i > 0 && (at != index || !bytes.Equal(blob, state)) {
					w.failf("queue %d: node %d is at entry %d, node 1 at %d, equal: %v", q, n.id, at, index, bytes.Equal(blob, state))
				}
				index, state = at, blob
			})
			w.settle()
		}
	}
}
