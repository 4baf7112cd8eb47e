package queue

import (
	"holdfast/internal/invariant"
	"holdfast/internal/planted"
)

// settle ends checkouts.
func (m *Machine) settle(c *Command, fx *Effects) {
	invariant.Pass("queue", "settle applied")
	if c.tx() != 0 {
		m.settlePart(c)
		return
	}
	con := m.consumer(c.Consumer)
	if con == nil || con.session != c.Session {
		return
	}
	if planted.Is(planted.SettlesAnother) {
		for _, other := range m.consumers {
			if other.session == con.session && other != con {
				con = other
			}
		}
	}
	before := con.held.count
	switch c.How {
	case Requeue:
		m.giveBack(con, c.First, c.Last, c.Blameless, requeued, fx)
	case Discard:
		m.discard(con, c, fx)
	default:
		m.finish(con, c.First, c.Last, Acked, fx)
	}
	if con.held.count == before {
		return
	}
	m.arrange(con)
	m.forgetEnded(con)
	m.serve(fx)
}

// finish releases what con holds under the ids first to last.
func (m *Machine) finish(con *consumer, first, last uint64, reason Reason, fx *Effects) {
	if m.extra != nil {
		m.takeBack(con, first, last, true, func(r run) { m.release(r.first, r.len(), r.attr, reason, fx) })
		return
	}
	m.unacked -= con.held.count
	var start Number // the range not yet noted: n messages from start on
	var n uint64
	con.held.take(first, last, func(s *slot) {
		if s.attr.is(flagBig) {
			m.release(s.number, 1, s.attr, reason, fx)
			return
		}
		if n > 0 && start+Number(n) == s.number {
			n++
			return
		}
		if n > 0 {
			fx.free(start, start+Number(n)-1, reason)
		}
		start, n = s.number, 1
	})
	if n > 0 {
		fx.free(start, start+Number(n)-1, reason)
	}
	m.unacked += con.held.count
}

// discard ends what con holds under ids that it has rejected.
func (m *Machine) discard(con *consumer, c *Command, fx *Effects) {
	if m.extra == nil || m.extra.set.DeadLetter == NoDeadLetter {
		m.finish(con, c.First, c.Last, Discarded, fx)
		return
	}
	m.takeBack(con, c.First, c.Last, c.Blameless, func(r run) { m.end(r, Discarded, fx) })
}

// comeback is why messages come back.
type comeback uint8

const (
	requeued  comeback = iota // their consumer has said so
	left                      // their consumer has left
	restarted                 // there is nobody any more
)

// giveBack returns what con holds under the ids first to last to its old place.
func (m *Machine) giveBack(con *consumer, first, last uint64, blameless bool, why comeback, fx *Effects) {
	m.takeBack(con, first, last, blameless, func(r run) {
		if m.extra == nil {
			m.putBack(r)
			return
		}
		if m.extra.exhausted(r.attr) && (why != restarted || !r.attr.is(flagTransient)) { // that is about to be lost
			m.end(r, Exhausted, fx)
			return
		}
		if ms := m.extra.wait(r.attr, blameless, why == requeued); ms > 0 && why != restarted {
			m.extra.waiting.add(m.in(ms)/millisecond, r)
			m.comeIn(r.first, r.last)
			return
		}
		m.putBack(r)
	})
}

// takeBack takes what con holds under the ids first to last, and calls f for each run of it, in
// order, with the history of after the return.
func (m *Machine) takeBack(con *consumer, first, last uint64, blameless bool, f func(run)) {
	m.unacked -= con.held.count
	var back run
	var n uint64
	con.held.take(first, last, func(s *slot) {
		a := s.attr.returned(blameless)
		if n > 0 && back.last+1 == s.number && back.attr == a {
			back.last = s.number
			n++
			return
		}
		if n > 0 {
			f(back)
		}
		back, n = run{s.number, s.number, a}, 1
	})
	if n > 0 {
		f(back)
	}
	m.unacked += con.held.count
}

// exhausted reports whether a message has come back too often.
func (x *extra) exhausted(a attr) bool {
	most, ok := x.set.DeliveryLimit.Get()
	if planted.Is(planted.LimitEarly) {
		most = max(most, 1) - 1
	}
	return ok && uint64(a.deliveryCount()) > most
}

// putBack makes a run of messages ready again.
func (m *Machine) putBack(r run) {
	if planted.Is(planted.DeadlineLost) && m.extra != nil {
		m.extra.deadlines.forget(r.first, r.last)
	}
	m.insert(r)
	m.comeIn(r.first, r.last)
}

// insert makes a run of messages ready that are counted.
func (m *Machine) insert(r run) {
	lane := r.first.Lane()
	m.lanes[lane].runs.insert(r)
	m.gain(lane, r.len())
}

// release notes that n messages from first on have left the queue, and with big ones
// their chunks.
func (m *Machine) release(first Number, n uint64, a attr, reason Reason, fx *Effects) {
	last := first + Number(n) - 1
	fx.free(first, last, reason)
	if m.extra != nil {
		m.extra.forget(first, last)
	}
	if !a.is(flagBig) {
		return
	}
	for k := first; k <= last; k++ {
		for _, r := range m.big[k] {
			fx.free(r.First, r.Last, reason)
		}
		delete(m.big, k)
	}
}

// purge removes all ready messages, and those that wait for a time.
func (m *Machine) purge(fx *Effects) {
	fx.add(Purged).Count = m.ready + m.Delayed()
	for i := range m.lanes {
		l := &m.lanes[i]
		l.runs.all(func(r run) { m.release(r.first, r.len(), r.attr, PurgedAway, fx) })
		l.runs.clear()
		l.ready = 0
	}
	m.ready, m.nonEmpty = 0, 0
	if m.extra != nil {
		m.extra.waiting.due(endOfTime, func(r run) { m.release(r.first, r.len(), r.attr, PurgedAway, fx) })
		m.extra.readyBytes = 0
	}
	if planted.Is(planted.PurgeTakesHeld) {
		for _, con := range m.consumers {
			m.finish(con, 0, ^uint64(0), PurgedAway, fx)
		}
	}
}

// drop removes what is ready of a range of numbers.
func (m *Machine) drop(c *Command, reason Reason, fx *Effects) {
	first, last := Number(c.First), Number(c.Last)
	lane := first.Lane()
	if int(lane) >= len(m.lanes) || last.Lane() != lane {
		return
	}
	m.lanes[lane].runs.remove(first, last, func(r run) {
		m.lose(lane, r.len())
		m.goOut(r.first, r.last)
		m.end(r, reason, fx)
	})
}
