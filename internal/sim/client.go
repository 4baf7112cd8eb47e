package sim

import (
	"encoding/binary"
	"slices"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
)

// client is a connection to a node that publishes into one queue and consumes from it.
type client struct {
	n      *node
	q      int
	h      *queuehost.Handle
	credit *queuehost.Credit
	seq    uint64
	under  map[uint64]*record // publishes without an outcome
	sub    *consumer
	getter *consumer
	gone   bool
}

// consumer is a consumer or getter of a client.
type consumer struct {
	c         *client
	id        queue.ConsumerID
	name      string
	noAck     bool
	window    *queuehost.Window // nil: unlimited credit
	held      []held
	last      map[*client]uint64 // order of the last first delivery, by publisher
	over      bool               // cancelled, detached, or its process is gone
	drained   int                // drains without an answer
	attached  bool
	cancelled bool
}

type held struct {
	id uint64
	r  *record
}

// Settled implements queuehost.Ticket.
func (c *client) Settled(first, last uint64, o queuehost.Outcome) {
	for seq := first; seq <= last; seq++ {
		r := c.under[seq]
		if r == nil {
			c.n.w.failf("node %d: publish %d was told %v, and nobody waits for it", c.n.id, seq, o)
			return
		}
		delete(c.under, seq)
		r.outcome = o
		r.told = true
		c.n.w.about(r, "told %v", o)
	}
}

func (w *World) newClient(n *node) *client {
	q := w.rng.IntN(len(w.defs))
	c := &client{n: n, q: q, h: n.handles[q], credit: n.reg.NewCredit(), under: map[uint64]*record{}}
	n.clients = append(n.clients, c)
	return c
}

// act has some client do something.
func (w *World) act() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if !n.up || n.paused > 0 {
		return
	}
	if len(n.clients) < 3 {
		w.newClient(n)
	}
	c := n.clients[w.rng.IntN(len(n.clients))]
	switch k := w.rng.IntN(100); {
	case k < 45:
		c.publish(1 + w.rng.IntN(6))
	case k < 60:
		if c.sub == nil {
			c.subscribe()
		} else {
			c.settleSome()
		}
	case k < 85:
		c.settleSome()
	case k < 90:
		c.get()
	case k < 94:
		if c.sub != nil {
			c.leave(w.rng.IntN(2) == 0)
		}
	case k < 97:
		c.h.Count(func(uint64, uint64, error) {})
	default:
		if c.sub != nil && !c.sub.over && c.sub.window != nil {
			c.sub.drained++
			c.h.Credit(c.sub.id, uint32(w.rng.IntN(3)), true)
		}
	}
}

func (c *client) publish(n int) {
	w := c.n.w
	if c.credit.InFlight() > 64<<10 {
		return
	}
	var ps []queuehost.Publish
	for range n {
		r := w.check.publish(c)
		size := 16 + w.rng.IntN(100)
		if w.rng.IntN(300) == 0 {
			size = message.ChunkSize + 1000
		}
		body := make([]byte, size)
		binary.BigEndian.PutUint64(body, r.id)
		var b message.Builder
		b.Begin("", "", []byte{0, 0}, uint64(size), true)
		b.Write(body)
		c.seq++
		c.under[c.seq] = r
		ps = append(ps, queuehost.Publish{Message: b.Message(), Persistent: w.rng.IntN(2) == 0, Ticket: c, Seq: c.seq, Credit: c.credit})
	}
	c.h.Publish(ps)
}

// idOf reads what was published.
func idOf(m message.Message) (uint64, bool) {
	v, err := message.Parse(m.Head)
	if err != nil {
		return 0, false
	}
	b := v.Body
	if len(m.Chunks) > 0 {
		b = m.Chunks[0]
	}
	if len(b) < 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}

func (c *client) subscribe() {
	w := c.n.w
	s := &consumer{c: c, name: w.check.name(), noAck: w.rng.IntN(8) == 0, last: map[*client]uint64{}}
	spec := queuehost.ConsumerSpec{Tag: s.name, Prefetch: uint32(w.rng.IntN(12)), NoAck: s.noAck, Credit: queuehost.Unlimited}
	if w.rng.IntN(2) == 0 {
		s.window = &queuehost.Window{Size: 4 + uint32(w.rng.IntN(20))}
		spec.Credit, spec.Wake = s.window.Size, true
	}
	c.sub = s
	s.id = c.h.Attach(spec, s, func(_ queue.ConsumerID, err error) {
		s.attached = err == nil
		if err != nil && c.sub == s {
			s.over = true
			c.sub = nil
		}
	})
}

// settleSome ends some checkouts.
func (c *client) settleSome() {
	for _, s := range []*consumer{c.sub, c.getter} {
		if s == nil || len(s.held) == 0 || s.over && s.cancelled {
			continue
		}
		w := c.n.w
		i := w.rng.IntN(len(s.held))
		j := min(len(s.held), i+1+w.rng.IntN(4))
		how := queue.Ack
		switch k := w.rng.IntN(20); {
		case k == 0:
			how = queue.Discard
		case k < 4:
			how = queue.Requeue
		}
		var ranges []queue.Range
		for _, x := range s.held[i:j] {
			ranges = append(ranges, queue.Range{First: x.id, Last: x.id})
			w.check.settled(s, x.r, how)
		}
		s.held = slices.Delete(s.held, i, j)
		c.h.Settle(s.id, ranges, how)
	}
}

// leave ends the consumer: cancelled first, or detached at once.
func (c *client) leave(cancel bool) {
	s := c.sub
	c.sub = nil
	end := func() {
		s.over = true
		w := c.n.w
		for _, x := range s.held {
			w.check.back(s, x.r)
		}
		s.held = nil
		c.h.Detach(s.id, nil)
	}
	if cancel {
		c.h.Cancel(s.id, end)
		return
	}
	end()
}

func (c *client) get() {
	if c.getter == nil {
		c.getter = &consumer{c: c, name: c.n.w.check.name(), last: map[*client]uint64{}}
		c.getter.id = c.h.Getter(queuehost.ConsumerSpec{Tag: c.getter.name}, c.getter)
	}
	s := c.getter
	c.h.Get(s.id, false, func(d queuehost.Delivery, _ uint64, ok bool, err error) {
		if ok && err == nil {
			s.take(d)
		}
	})
}

// Deliver implements queuehost.Consumer.
func (s *consumer) Deliver(ds []queuehost.Delivery) {
	for _, d := range ds {
		s.take(d)
	}
	if s.window != nil && !s.over {
		if n := s.window.Sent(uint32(len(ds))); n > 0 {
			s.c.h.Credit(s.id, n, false)
		}
	}
}

func (s *consumer) take(d queuehost.Delivery) {
	w := s.c.n.w
	if d.Load != nil {
		w.failf("%s: a delivery of another node is to be loaded", s.name)
		return
	}
	id, ok := idOf(d.Message)
	if !ok {
		w.failf("%s: delivery %d makes no sense", s.name, d.ID)
		return
	}
	r := w.check.delivered(s, id, d)
	switch {
	case r == nil:
	case s.noAck && s.over: // it crossed the detach: it goes back, or it does not
		if !r.done {
			r.done, r.doubt = true, true
		}
	case s.over: // it goes back
	case s.noAck:
		w.check.settled(s, r, queue.Ack)
	default:
		s.held = append(s.held, held{d.ID, r})
	}
}

// Cancelled implements queuehost.Consumer.
func (s *consumer) Cancelled(reason error) {
	s.over, s.cancelled = true, true
	s.c.n.w.failf("%s was cancelled: %v", s.name, reason)
}

// Drained implements queuehost.Consumer.
func (s *consumer) Drained(uint32) {
	s.drained--
	if s.drained < 0 {
		s.c.n.w.failf("%s: more answers than drains", s.name)
	}
	if s.window != nil && !s.over {
		s.c.h.Credit(s.id, s.window.Size, false)
	}
}

// Wake implements queuehost.Consumer.
func (s *consumer) Wake() {
	if !s.over {
		s.c.h.Credit(s.id, 1, false)
	}
}
