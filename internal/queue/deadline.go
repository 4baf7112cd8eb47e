package queue

import "math/bits"

// A message may have a deadline. It keeps it while it is held; at the front of its lane it expires when its time
// is over. Behind a message that stays, it waits.

const (
	millisecond = 1_000_000
	endOfTime   = 1 << 62 // no deadline is after it
)

// notes is what is known of some messages of a queue, a value for each: a set of runs for each lane, where the
// history of a run is the value.
type notes struct {
	lanes []runs
	count uint64 // messages that have a value
}

// add notes a value of messages that have none.
func (s *notes) add(first, last Number, value uint64) {
	lane := int(first.Lane())
	for lane >= len(s.lanes) {
		s.lanes = append(s.lanes, runs{})
	}
	r := run{first, last, attr(value)}
	s.lanes[lane].insert(r)
	s.count += r.len()
}

// forget removes what is known of messages.
func (s *notes) forget(first, last Number) {
	if s.count == 0 || int(first.Lane()) >= len(s.lanes) {
		return
	}
	s.lanes[first.Lane()].remove(first, last, func(r run) { s.count -= r.len() })
}

// change replaces the value of those messages that have one.
func (s *notes) change(first, last Number, value uint64) {
	if s.count == 0 {
		return
	}
	for n := first; ; {
		old, ok, upTo := s.at(n, last)
		if ok && old != value {
			s.forget(n, upTo)
			s.add(n, upTo, value)
		}
		if upTo == last {
			return
		}
		n = upTo + 1
	}
}

// at returns the value of a message, whether it has one, and the last one behind it of which the same is true, up to last.
func (s *notes) at(n, last Number) (value uint64, ok bool, upTo Number) {
	lane := int(n.Lane())
	if s.count == 0 || lane >= len(s.lanes) {
		return 0, false, last
	}
	l := &s.lanes[lane]
	bi, i := l.find(n)
	if bi == len(l.blocks) {
		return 0, false, last
	}
	r := l.blocks[bi].live()[i]
	if r.first > n {
		return 0, false, min(last, r.first-1)
	}
	return uint64(r.attr), true, min(last, r.last)
}

// all calls f for each run, neighbours joined.
func (s *notes) all(f func(run)) {
	for i := range s.lanes {
		var r run
		s.lanes[i].all(func(next run) {
			switch {
			case r.first == 0:
				r = next
			case next.follows(r):
				r.last = next.last
			default:
				f(r)
				r = next
			}
		})
		if r.first != 0 {
			f(r)
		}
	}
}

// forget removes what is known of messages that leave.
func (x *extra) forget(first, last Number) {
	x.deadlines.forget(first, last)
	x.sizes.forget(first, last)
	x.unweighed.forget(first, last)
	x.keys.forget(first, last)
}

// deadline returns the time at which a message expires that comes in now with a time to live and waits so many milliseconds
// before it is ready, which is from when that counts; and whether it does.
func (m *Machine) deadline(ttl Limit, wait uint64) (int64, bool) {
	if m.extra != nil && m.extra.set.TTL > 0 && (ttl == 0 || m.extra.set.TTL < ttl) {
		ttl = m.extra.set.TTL
	}
	ms, ok := ttl.Get()
	if ms+wait == 0 || !ok {
		return m.now, ok
	}
	return m.in(ms + min(wait, ^uint64(0)-ms)), true
}

// in returns the time that is so many milliseconds from now, in whole milliseconds: neighbours are told by one number.
func (m *Machine) in(ms uint64) int64 {
	if ms > uint64(endOfTime-min(m.now, endOfTime))/millisecond {
		return endOfTime
	}
	t := m.now + int64(ms)*millisecond
	return min((t+millisecond-1)/millisecond*millisecond, endOfTime)
}

// expireFront releases messages at the front of a lane whose time is over, as many as are told by one number.
// It reports whether there were any.
func (m *Machine) expireFront(lane uint8, fx *Effects) bool {
	x := m.extra
	l := &m.lanes[lane]
	if x == nil || x.deadlines.count == 0 || l.ready == 0 {
		return false
	}
	r := *l.runs.front()
	d, ok, upTo := x.deadlines.at(r.first, r.last)
	if !ok || int64(d) > m.now || r.first >= x.fresh.First && r.first <= x.fresh.Last {
		return false
	}
	r.last = upTo
	l.runs.cutFront(r.len())
	m.lose(lane, r.len())
	m.goOut(r.first, r.last)
	m.end(r, Expired, fx)
	return true
}

// expire releases all messages at the front of a lane whose time is over.
func (m *Machine) expire(fx *Effects) {
	if m.extra == nil || m.extra.deadlines.count == 0 {
		return
	}
	for left := m.nonEmpty; left != 0; {
		lane := topOf(left)
		left &^= 1 << lane
		for m.expireFront(lane, fx) {
		}
	}
}

// NextDeadline returns the time at which something happens without anybody's doing: a message expires, or is ready, or keys have had their time,
// which is noticed within a minute. There should be an entry then, with a Due if nothing else is to be said. ok is false if nothing will.
func (m *Machine) NextDeadline() (t int64, ok bool) {
	x := m.extra
	if x == nil {
		return 0, false
	}
	if x.deadlines.count > 0 {
		for left := m.nonEmpty; left != 0; left &= left - 1 {
			r := m.lanes[bits.TrailingZeros64(left)].runs.front()
			if d, has, _ := x.deadlines.at(r.first, r.last); has && (!ok || int64(d) < t) {
				t, ok = int64(d), true
			}
		}
	}
	if ms, has := x.waiting.next(); has && (!ok || ms*millisecond < t) {
		t, ok = ms*millisecond, true
	}
	if x.set.Deduplicate == NoKey && len(x.screens) == 0 {
		return t, ok
	}
	if ms, has := x.nextForgotten(); has && (!ok || ms*millisecond < t) {
		t, ok = ms*millisecond, true
	}
	return t, ok
}
