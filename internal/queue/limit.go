package queue

import (
	"holdfast/internal/invariant"
	"holdfast/internal/planted"
)

// admit puts a block of messages at the end of its lane, as many of them as the settings let
// in, and refuses the others. It is the same as if they came one by one.
func (m *Machine) admit(c *Command, s *session, before uint64, block run, fx *Effects) {
	size, delay := c.Bytes/uint64(c.Count), wholeMilliseconds(c.terms().Delay)
	if planted.Is(planted.DelayHalved) {
		delay /= 2
	}
	deadline, mortal := m.deadline(c.terms().TTL, delay)
	reason, keyed := NoRoom, m.extra.keyed(c)
	if m.extra.deadFull() {
		reason = DeadFull
	}
	screen := c.terms().Screen
	if (keyed || screen != nil) && c.Count != 1 {
		invariant.Failf("queue: %d messages have one key", c.Count)
	}
	if m.isScreened(screen, !c.Persistent) {
		m.release(block.first, 1, block.attr, Duplicate, fx)
		return
	}
	if keyed {
		switch forever := m.extra.set.forever(); {
		case forever && m.isRepeated(c):
			m.release(block.first, 1, block.attr, Duplicate, fx)
			return
		case !forever && reason == NoRoom && m.space(size) > 0 && m.isRepeated(c):
			reason = Duplicate
		}
	}
	for left := block.len(); reason == NoRoom; {
		n := min(left, m.space(size))
		if n > 0 {
			if keyed {
				m.keep(c, block.first)
			}
			if screen != nil {
				m.pass(screen, !c.Persistent)
			}
			m.letIn(run{block.first, block.first + Number(n) - 1, block.attr}, Most(size), delay, deadline, mortal, fx)
			block.first += Number(n)
			left -= n
		}
		if left == 0 {
			return
		}
		if n == 0 {
			break
		}
	}
	m.refuse(c, s, before, block, reason, fx)
}

// letIn lets messages in, whatever the limits say, and gives them to who waits. They are delayed by delay milliseconds;
// their size may not be known (0); deadline counts if they are mortal.
func (m *Machine) letIn(r run, size Limit, delay uint64, deadline int64, mortal bool, fx *Effects) {
	x := m.extra
	if delay > 0 {
		x.waiting.add(m.in(delay)/millisecond, r)
	} else {
		m.insert(r)
	}
	if bytes, ok := size.Get(); x.sized() && ok {
		x.sizes.add(r.first, r.last, bytes)
		x.readyBytes += bytes * r.len()
	} else if x.sized() {
		x.unweighed.add(r.first, r.last, counts)
	}
	if mortal {
		x.deadlines.add(r.first, r.last, uint64(deadline))
	}
	x.fresh = Numbers{r.first, r.last}
	m.serve(fx)
	x.fresh = Numbers{}
}

// wholeMilliseconds rounds a time in nanoseconds up.
func wholeMilliseconds(ns uint64) uint64 { return ns/millisecond + min(ns%millisecond, 1) }

// space returns how many messages of a size are let in now.
func (m *Machine) space(size uint64) uint64 {
	set := &m.extra.set
	if set.Overflow == OverflowDropHead {
		return ^uint64(0)
	}
	n := ^uint64(0)
	if most, ok := set.MaxLength.Get(); ok {
		n = most - min(m.ready+m.extra.waiting.count, most)
	}
	if most, ok := set.MaxBytes.Get(); ok {
		switch used := m.extra.readyBytes; {
		case used > most || size > most-used:
			n = 0
		case size > 0:
			n = min(n, (most-used)/size)
		}
	}
	return n
}

// refuse turns away a block, or what is left of it. The publishes are of s, which may be nil;
// before is the last number that was accepted of it before.
func (m *Machine) refuse(c *Command, s *session, before uint64, block run, reason Reason, fx *Effects) {
	n := block.len()
	e := fx.add(Overflowed)
	e.Session, e.First, e.Last, e.Count, e.Reason = c.Session, block.first, block.last, n, reason
	if s != nil && c.Seq > before {
		s.refuse(c.Seq-min(n, c.Seq-before)+1, c.Seq)
	}
	set := &m.extra.set
	if letters := reason == Duplicate || reason == NoRoom && set.Overflow == OverflowRejectDLX; letters && set.DeadLetter != NoDeadLetter && !c.terms().Carried {
		if m.extra.sized() {
			m.extra.sizes.add(block.first, block.last, c.Bytes/uint64(c.Count))
		}
		m.end(block, Dropped, fx)
		return
	}
	m.release(block.first, n, block.attr, reason, fx)
}

// keepLimit drops messages at the head until the rest is within the limits.
func (m *Machine) keepLimit(fx *Effects) {
	x := m.extra
	if x.set.Overflow != OverflowDropHead {
		return
	}
	if most, ok := x.set.MaxLength.Get(); ok {
		if planted.Is(planted.OneTooMany) {
			most++
		}
		for all := m.ready + x.waiting.count; all > most && m.ready > 0; all = m.ready + x.waiting.count {
			m.dropFront(all-most, Dropped, fx)
		}
	}
	most, ok := x.set.MaxBytes.Get()
	for ok && x.readyBytes > most && m.ready > 0 {
		r := m.lanes[m.top()].runs.front()
		size, _, upTo := x.sizes.at(r.first, r.last)
		n := uint64(upTo-r.first) + 1
		if size > 0 {
			n = min(n, (x.readyBytes-most-1)/size+1)
		}
		m.dropFront(n, Dropped, fx)
	}
}

// dropFront drops up to n messages of the first run in front.
func (m *Machine) dropFront(n uint64, reason Reason, fx *Effects) {
	at := m.top()
	l := &m.lanes[at]
	r := *l.runs.front()
	n = min(n, r.len())
	r.last = r.first + Number(n) - 1
	l.runs.cutFront(n)
	m.lose(at, n)
	m.goOut(r.first, r.last)
	m.end(r, reason, fx)
}

// refusals are the publishes of a session that were refused, by their numbers, in order.
type refusals struct {
	open   []Range // of the epoch that is open, as far as its node does not know
	closed []Range // of the one before, that it did not know of when it was closed
}

// refuse notes that the publishes first to last are refused; all before are decided.
func (s *session) refuse(first, last uint64) {
	if s.refused == nil {
		s.refused = &refusals{}
	}
	rs := s.refused.open
	if n := len(rs); n > 0 && rs[n-1].Last+1 == first {
		rs[n-1].Last = last
		return
	}
	s.refused.open = append(rs, Range{first, last})
}

// heard forgets the refused publishes up to a number.
func (s *session) heard(upTo uint64) {
	if s.refused == nil {
		return
	}
	rs := s.refused.open
	n := 0
	for n < len(rs) && rs[n].Last <= upTo {
		n++
	}
	if rs = rs[n:]; len(rs) > 0 {
		rs[0].First = max(rs[0].First, upTo+1)
	}
	s.refused.open = rs
	s.tidyRefused()
}

// closeRefused begins a new epoch.
func (s *session) closeRefused() {
	if s.refused != nil {
		s.refused.open, s.refused.closed = nil, s.refused.open
		if planted.Is(planted.RefusalsForgotten) {
			s.refused.closed = nil
		}
		s.tidyRefused()
	}
}

func (s *session) tidyRefused() {
	if len(s.refused.open) == 0 && len(s.refused.closed) == 0 {
		s.refused = nil
	}
}

// Refused calls f for the publishes that were refused in the epoch of a session before the one that
// is open, in order, as far as its node had not heard of it when it was closed: of the numbers
// up to Closed these were not accepted.
func (m *Machine) Refused(id SessionID, f func(Range)) {
	if s := m.session(id); s != nil && s.refused != nil {
		for _, r := range s.refused.closed {
			f(r)
		}
	}
}
