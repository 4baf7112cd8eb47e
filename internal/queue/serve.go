package queue

import (
	"slices"

	"holdfast/internal/invariant"
	"holdfast/internal/planted"
)

// turns is the line of the consumers that can get a message, or that can be
// told of one they have no credit for: those of a higher level first, and among
// those of one level who was served goes to the end.
type turns struct {
	head, tail *consumer
	ends       *[]end // where each level ends, highest first; nil: all are of one level
}

// end is the last consumer of a level.
type end struct {
	level int32
	last  *consumer
}

func (t *turns) push(c *consumer) {
	if t.tail != nil && (t.ends != nil || t.tail.level != c.level) {
		t.place(c)
		return
	}
	c.prev, c.next, c.queued = t.tail, nil, true
	if t.tail != nil {
		t.tail.next = c
	} else {
		t.head = c
	}
	t.tail = c
}

// place puts c at the end of its level in a line that is not empty, where there are several, or are to be.
func (t *turns) place(c *consumer) {
	after := t.last(c)
	c.prev, c.queued = after, true
	if after != nil {
		c.next, after.next = after.next, c
	} else {
		c.next, t.head = t.head, c
	}
	if c.next != nil {
		c.next.prev = c
	} else {
		t.tail = c
	}
}

// toEnd lets the one in front go to the end of a line of one level, in which there are others.
func (t *turns) toEnd(c *consumer) {
	t.head, c.next.prev = c.next, nil
	t.tail.next, c.prev, c.next = c, t.tail, nil
	t.tail = c
}

// last makes c the last one of its level and returns who it is behind.
func (t *turns) last(c *consumer) *consumer {
	if t.ends == nil {
		t.ends = &[]end{{t.tail.level, t.tail}}
	}
	ends := *t.ends
	i := 0
	for i < len(ends) && ends[i].level > c.level {
		i++
	}
	if i < len(ends) && ends[i].level == c.level {
		before := ends[i].last
		ends[i].last = c
		return before
	}
	*t.ends = slices.Insert(ends, i, end{c.level, c})
	if i > 0 {
		return ends[i-1].last
	}
	return nil
}

func (t *turns) remove(c *consumer) {
	if !c.queued {
		return
	}
	if t.ends != nil {
		t.unlast(c)
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

// unlast lets another one be the last of a level, if c is.
func (t *turns) unlast(c *consumer) {
	ends := *t.ends
	for i := range ends {
		if ends[i].last != c {
			continue
		}
		if c.prev != nil && c.prev.level == c.level {
			ends[i].last = c.prev
			return
		}
		*t.ends = slices.Delete(ends, i, i+1)
		break
	}
	if len(*t.ends) < 2 {
		t.ends = nil
	}
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
// are both. A consumer alone of its level gets its messages in one go.
func (m *Machine) serve(fx *Effects) {
	for m.ready > 0 {
		c := m.turns.head
		if c == nil {
			return
		}
		if m.extra != nil {
			if !m.extra.set.gives() && !(planted.Is(planted.PauseLeaks) && m.applied%8 == 0) {
				return
			}
			if m.expireFront(m.top(), fx) {
				continue
			}
		}
		if c.credit == 0 {
			c.woken = true
			m.turns.remove(c)
			fx.about(Wake, c.id)
			continue
		}
		n, alone := uint64(1), c.next == nil || c.next.level != c.level
		if alone {
			n = c.room()
		}
		m.assign(c, n, fx)
		if !alone {
			if m.turns.ends == nil && c.standing() == Waiting {
				m.turns.toEnd(c)
				continue
			}
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
		if m.extra != nil {
			m.goOut(first, first+Number(n)-1)
		}
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
	con := m.consumer(c.Consumer)
	if con == nil || !con.getter || con.cancelled || m.ready == 0 || m.extra != nil && !m.extra.set.gives() {
		fx.about(Empty, c.Consumer)
		return
	}
	con.noAck = c.NoAck
	m.assign(con, 1, fx)
	m.expire(fx)
	fx.List[len(fx.List)-1].Left = m.ready
}
