package queue

import (
	"holdfast/internal/invariant"
	"holdfast/internal/planted"
)

// turns is the line of the consumers that can get a message, or that can be
// told of one they have no credit for. Who was served goes to its end.
type turns struct {
	head, tail *consumer
}

func (t *turns) push(c *consumer) {
	c.prev, c.next, c.queued = t.tail, nil, true
	if t.tail != nil {
		t.tail.next = c
	} else {
		t.head = c
	}
	t.tail = c
}

func (t *turns) remove(c *consumer) {
	if !c.queued {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		t.head = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		t.tail = c.prev
	}
	c.prev, c.next, c.queued = nil, nil, false
}

// arrange puts the consumer at the end of the line if it has become able to take its
// turn, and out of the line if it no longer is.
func (m *Machine) arrange(c *consumer) {
	able := false
	switch c.standing() {
	case Waiting:
		able = true
	case NoCredit:
		able = c.wake && !c.woken
	}
	if able == c.queued {
		return
	}
	if able {
		m.turns.push(c)
	} else {
		m.turns.remove(c)
	}
}

// serve gives ready messages to the consumers in line, one each in turn, as long as there
// are both. A consumer alone in line gets its messages in one go.
func (m *Machine) serve(fx *Effects) {
	for m.ready > 0 {
		c := m.turns.head
		if c == nil {
			return
		}
		if m.extra != nil && m.expireFront(m.top(), fx) {
			continue
		}
		if c.credit == 0 {
			c.woken = true
			m.turns.remove(c)
			fx.about(Wake, c.id)
			continue
		}
		n := uint64(1)
		if c.next == nil {
			n = c.room()
		}
		m.assign(c, n, fx)
		if c.next != nil {
			m.turns.remove(c)
			m.arrange(c)
		} else if c.standing() != Waiting {
			m.arrange(c)
		}
	}
}

// assign gives c up to n messages from the front of the queue, as many as the first
// run has, but only one if it is big. It returns how many it were.
func (m *Machine) assign(c *consumer, n uint64, fx *Effects) uint64 {
	at := m.top()
	l := &m.lanes[at]
	r := l.runs.front()
	if r == nil {
		invariant.Failf("queue: %d messages ready in lane %d and none found", l.ready, at)
	}
	first, a := r.first, r.attr
	n = min(n, r.len())
	if a.is(flagBig) {
		n = 1
	}
	if m.extra != nil { // those behind may have expired
		_, _, upTo := m.extra.deadlines.at(first, first+Number(n)-1)
		n = uint64(upTo-first) + 1
	}
	if planted.Is(planted.DoubleCheckout) && (c.delivered+1)%16 == 0 {
		n = 1
	} else {
		l.runs.cutFront(n)
		m.lose(at, n)
	}
	if !a.is(flagTransient) {
		m.handedOut = true
	}

	id := c.delivered + 1
	c.delivered += n
	if c.credit != Unlimited && !c.getter {
		c.credit -= uint32(n)
	}
	fx.deliver(c, id, first, n, a)
	if a.is(flagBig) {
		fx.List[len(fx.List)-1].Chunks = m.big[first]
	}
	if c.noAck {
		m.release(first, n, a, AutoAcked, fx)
		return n
	}
	m.unacked += n
	c.held.add(id, first, n, m.now, a)
	return n
}

func (m *Machine) get(c *Command, fx *Effects) {
	m.expire(fx)
	con := m.consumer(c.Consumer)
	if con == nil || !con.getter || con.cancelled || m.ready == 0 {
		fx.about(Empty, c.Consumer)
		return
	}
	con.noAck = c.NoAck
	m.assign(con, 1, fx)
	m.expire(fx)
	fx.List[len(fx.List)-1].Left = m.ready
}
